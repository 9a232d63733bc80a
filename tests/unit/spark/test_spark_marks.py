"""What a micro-batch that is run again still has to write: marks, the look back, and when it is spared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.marks import Content, Mark, RunMemory, Seen, Written, decode_mark, look_back

NOW = Mark("query", 7, 0)
OLD = Mark("query", 6, 1)
OTHER = Mark("other", 3, 0)


def content(number: int) -> Content:
    return Content("t", None, b"%d" % number, ())


class Topic:
    """Partitions of marked records; notes what is read."""

    def __init__(self, logs: Mapping[int, list[Seen]], firsts: Mapping[int, int] | None = None) -> None:
        self.logs = logs
        self.firsts = firsts or {}
        self.read_offsets = 0

    def bounds(self, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        return {TopicPartition("t", one): (self.firsts.get(one, 0), len(log)) for one, log in self.logs.items()}

    def read(self, topic_partition: TopicPartition, from_offset: int, until_offset: int) -> Iterable[Seen]:
        self.read_offsets += until_offset - from_offset
        return self.logs[topic_partition.partition][from_offset:until_offset]


def log(*marks: Mark | None, partition: int = 0) -> list[Seen]:
    return [Seen(partition, content(number), mark) for number, mark in enumerate(marks)]


def found(topic: Topic) -> list[tuple[int, bytes | None]]:
    seen: list[Seen] = []
    look_back(topic, "t", NOW, seen.append)
    return sorted((one.partition, one.content.value) for one in seen)


def test_a_mark_survives_its_header() -> None:
    for mark in (NOW, Mark("query:late", 7, 0, "1f0c", 12)):
        assert decode_mark(mark.encode()) == mark
    assert decode_mark(b"query/7/0") == NOW, "as earlier versions wrote it"
    for no_mark in (None, b"", b"x", b"query/7", b"query/7/x", b"\xff/1/2/3x", b"query/7/0/run", b"query/7/0/run/x"):
        assert decode_mark(no_mark) is None


def test_only_this_batch_of_this_task_counts() -> None:
    others = [OLD, NOW._replace(task=1), OTHER, None, NOW, NOW._replace(batch_id=8)]
    assert found(Topic({0: log(*others), 1: log(NOW, partition=1)})) == [(0, b"4"), (1, b"0")]


def test_records_of_another_write_of_the_batch_are_refused() -> None:
    """Its rows may equal this one's. A stage of another run says nothing, and a task that is run again has the same."""
    mine = NOW._replace(run="run", stage=20)
    for of_mine in (mine, mine._replace(run="before", stage=3), NOW, mine._replace(query_id="query:late", stage=21)):
        look_back(Topic({0: log(of_mine)}), "t", mine, [].append)
    with pytest.raises(TidegaugeError, match="Micro-batch 7 writes topic t twice"):
        look_back(Topic({0: log(mine, mine._replace(stage=21))}), "t", mine, [].append)


def test_the_look_ends_behind_an_older_batch_and_at_the_first_offset() -> None:
    """Micro-batches are one after the other: nothing of this one lies before a record of the one before."""
    ended = Topic({0: log(*[None] * 50_000, OLD, *[NOW] * 10)})
    assert len(found(ended)) == 10
    assert ended.read_offsets == 1_000
    bounded = Topic({0: log(*[NOW] * 5_000)}, {0: 4_000})
    assert len(found(bounded)) == 1_000
    assert bounded.read_offsets == 1_000


def test_a_batch_that_is_larger_than_the_first_look_is_found_whole() -> None:
    topic = Topic({0: log(OLD, *[None] * 3, *[NOW] * 9_000)})
    assert len(found(topic)) == 9_000


@settings(max_examples=100)
@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 12), st.randoms(use_true_random=False))
def test_rows_in_any_order_are_written_once(rows: list[int], done: int, random: object) -> None:
    """An attempt before wrote some of the rows; this one gives all of them in another order and skips just those."""
    written = Written()
    already = rows[:done]
    for number in already:
        written.add(Seen(number % 2, content(number), NOW))
    again = list(rows)
    random.shuffle(again)  # type: ignore[attr-defined]
    sent = [number for number in again if not written.take(content(number), None)]
    assert sorted(already + sent) == sorted(rows)
    assert len(written) == 0


def test_a_row_with_a_partition_is_looked_for_only_there() -> None:
    written = Written()
    written.add(Seen(1, content(5), NOW))
    assert not written.take(content(5), 0)
    assert written.take(content(5), 1)
    assert not written.take(content(5), 1)


@pytest.mark.parametrize(
    ("attempt", "run_id", "batch_id", "must_look"),
    [(0, "run", 8, False), (1, "run", 8, True), (0, "run", 7, True), (0, "new run", 8, True), (0, "run", 9, False)],
)
def test_a_first_attempt_at_a_later_batch_of_the_run_need_not_look(
    attempt: int, run_id: str, batch_id: int, must_look: bool
) -> None:
    memory = RunMemory()
    memory.done("query", "run", 7)
    assert memory.must_look("query", run_id, batch_id, attempt) is must_look
