"""What a micro-batch has already written: each of its records names query, batch and task in a header.

Contract: a task that may not be the first attempt looks back through the topic and writes only what is missing.

- A mark is ``query/batch/task/run/stage`` in header ``tidegauge.write``. Micro-batches of a query come one after
  the other and each ends acknowledged, so no record of this one can follow a record of an older batch: the look back
  ends there.
- What an earlier attempt has sent may be in the leader's log but not committed yet: the look back waits until the high
  watermark has reached the log end that the leader had when it began.
- Contents are counted, not positions: a task may give its rows in another order when it is run again. Only the set of
  rows must be the same, as Spark demands of every exactly-once sink.
- Two writes of one micro-batch into one topic (foreachBatch) need names: a row of the second that equals one of the
  first would count as written. A look back that meets records of another stage of the run, which are of another write,
  is refused.
- It can't see what a task that is still running writes later: leave spark.speculation off. And PySpark does not tell a
  task that its *stage* is run again (after shuffle files were lost with an executor): such a task looks back only if
  its process has no part in an earlier micro-batch of the run.

Source: the idea of Spark's foreachBatch recipe (batch id as version); Kafka's own sink is at-least-once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition

MARK_HEADER = "tidegauge.write"
FIRST_LOOK = 1_000
"""Offsets of the first look; each further look covers four times as many."""
LOOK_FACTOR = 4

Headers = tuple[tuple[str, bytes | None], ...]


class Mark(NamedTuple):
    """Query, micro-batch and task of the attempt that wrote a record; and its run and stage.

    A task that is run again in a run, alone or with its whole stage, has the same stage; a task of another write has
    another one. In another run, after a restart, stages say nothing.
    """

    query_id: str
    batch_id: int
    task: int
    run: str = ""
    stage: int = 0

    @property
    def work(self) -> tuple[str, int, int]:
        """What is the same when the task is run again."""
        return self[:3]

    def is_of_another_write(self, other: Mark) -> bool:
        """Return whether both are of one run, and of two writes of it."""
        return self.run == other.run and self.stage != other.stage

    def encode(self) -> bytes:
        """Return the header's value."""
        return "/".join(map(str, self)).encode()


def decode_mark(value: bytes | None) -> Mark | None:
    """Read the header's value; None if it is not a mark. Marks of earlier versions have no run and no stage."""
    query_id, *rest = (value or b"").decode(errors="replace").split("/")
    if len(rest) not in {2, 4} or not all(one.isascii() and one.isdecimal() for one in (*rest[:2], *rest[3:])):
        return None
    run, stage = rest[2:] or ("", 0)
    return Mark(query_id, int(rest[0]), int(rest[1]), run, int(stage))


class Content(NamedTuple):
    """A record without its position."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class Seen(NamedTuple):
    """A record in the topic."""

    partition: int
    content: Content
    mark: Mark | None


class Written:
    """Counts what is in the topic already, and is asked once for each row of the task."""

    def __init__(self) -> None:
        self._counts: dict[Content, Counter[int]] = {}

    def add(self, seen: Seen) -> None:
        """Add a record of an earlier attempt."""
        self._counts.setdefault(seen.content, Counter())[seen.partition] += 1

    def take(self, content: Content, partition: int | None) -> bool:
        """Return whether this row is in the topic; each record stands for one row."""
        counts = self._counts.get(content)
        if not counts:
            return False
        found = partition if partition is not None else next(iter(counts))
        if not counts[found]:
            return False
        counts[found] -= 1
        counts += Counter()  # without those that are used up
        return True

    def __len__(self) -> int:
        return sum(count for counts in self._counts.values() for count in counts.values())


class TopicView(Protocol):
    """The requests to the cluster that a look back needs."""

    def bounds(self, topic: str) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return for each partition the first offset to be looked at, and the leader's log end."""
        ...

    def read(self, topic_partition: TopicPartition, from_offset: int, until_offset: int) -> Iterable[Seen]:
        """Yield all records of a range; wait until it is committed."""
        ...


def look_back(view: TopicView, topic: str, mark: Mark, found: Callable[[Seen], None]) -> None:
    """Find every record of the topic that an attempt of this task has written, from the end backwards.

    Raises:
        TidegaugeError: INVALID_REQUEST, records of another write of the micro-batch are there.
    """
    for topic_partition, (first, end) in view.bounds(topic).items():
        for lowest, until in _looks(first, end):
            is_past = False
            for seen in view.read(topic_partition, lowest, until):
                if seen.mark is None or seen.mark.query_id != mark.query_id:
                    continue
                if seen.mark.work == mark.work:
                    if seen.mark.is_of_another_write(mark):
                        raise _two_writes(topic, mark)
                    found(seen)
                else:
                    is_past = is_past or seen.mark.batch_id < mark.batch_id
            if is_past:
                break


def _two_writes(topic: str, mark: Mark) -> TidegaugeError:
    return TidegaugeError(
        ErrorCode.INVALID_REQUEST,
        f"Micro-batch {mark.batch_id} writes topic {topic} twice, and no record says which write it is of: equal rows "
        "would be written once. Give each write in foreachBatch a name of its own (option idempotentName); after a "
        "failed write let the batch fail, and Spark runs it again",
    )


def _looks(first: int, end: int) -> Iterator[tuple[int, int]]:
    size = FIRST_LOOK
    while end > first:
        lowest = max(first, end - size)
        yield lowest, end
        end = lowest
        size *= LOOK_FACTOR


class RunMemory:
    """The micro-batches of a run in which this process has taken part: a later one can't have begun before.

    Contract: after a restart a query has another run id, and its first batch may be one that was interrupted.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], int] = {}

    def must_look(self, query_id: str, run_id: str, batch_id: int, attempt: int) -> bool:
        """Return whether records of this batch may be in the topic already."""
        return attempt > 0 or self._newest.get((query_id, run_id), batch_id) >= batch_id

    def done(self, query_id: str, run_id: str, batch_id: int) -> None:
        """Note that a task of the batch has succeeded here."""
        self._newest[query_id, run_id] = max(batch_id, self._newest.get((query_id, run_id), batch_id))
