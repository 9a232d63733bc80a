"""Compactions of a world's logs, stage by stage as ``LogCleaner`` makes them, and what comes between the stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from tests.unit.log.crash_twin import Twin

from tidegauge.partition import TopicPartition
from tidegauge_broker.log.cleaner import Cleaning, CompactionVoid
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.log.segment import LogSegment

if TYPE_CHECKING:
    from tests.unit.log.crash_world import World

_MOST_ROUNDS = 6
_MOST_APPENDS = 30
_OF_ONE_KEY = 30
"""``World.append`` makes a batch without a producer of it: one record with a value, and no gap before it."""
_BEHIND_A_GAP = 13
_DISTURBANCES = ("truncate", "truncate", "truncate", "empty", "move", "topic", "policy")


class Cleaner:
    """The compactions of one process, one at a time.

    Args:
        world: whose logs are compacted.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._stages: Iterator[None] = iter(())
        self.at: TopicPartition | None = None
        """Whose compaction is in progress."""

    def advance(self, stages: int, capacity: int | None = None) -> bool:
        """Make some stages of the compaction in progress, or of a new one; return whether it goes on.

        Args:
            stages: how many.
            capacity: of a new one: how many keys its map holds, if not as many as it likes.
        """
        for _ in range(stages):
            if next(self._stages, self) is not self:
                continue
            self._stages = self._clean(capacity)
            if next(self._stages, self) is self:
                return False
        return True

    def finish(self, capacity: int | None = None, rounds: int = _MOST_ROUNDS) -> None:
        """Compact until nothing is worth it, or so many times."""
        for _ in range(rounds):
            for _ in self._stages:
                pass
            self._stages = self._clean(capacity)
            if next(self._stages, self) is self:
                break
        for _ in self._stages:
            pass

    def _clean(self, capacity: int | None) -> Iterator[None]:
        world = self._world
        stable = {at: twin.last_stable_offset(twin.high_watermark) for at, twin in world.alive() if twin.is_compacted}
        cleaning = world.logs.compaction.next_to_clean(stable)
        if cleaning is None:
            return
        self.at = at = cleaning.log.topic_partition
        truncations = world.twin(at).truncations
        cleaning._offsets.capacity = capacity or cleaning._offsets.capacity
        limit = min(cleaning.part.first_uncleanable_offset, stable[at])
        try:
            with suppress(CompactionVoid):
                yield
                groups = cleaning.map_keys()
                if not groups:
                    return
                if world.logs.get(at) is cleaning.log:
                    world.note_flushed(at)
                for group in groups:
                    yield
                    cleaned = cleaning.write(group)
                    yield
                    if self._may_go_on(cleaning, truncations):
                        end = _end_of(cleaning.log, group)
                        world.twins[at] = world.twin(at).compacted(min(end, limit), limit)
                    if not cleaning.replace(group, cleaned):
                        return
                yield
                world.logs.compaction.note_cleaned(cleaning)
        finally:
            self.at = None

    def _may_go_on(self, cleaning: Cleaning, truncations: int) -> bool:
        """Whether Kafka would not have stopped a compaction: then it removes nothing any more."""
        world, at = self._world, cleaning.log.topic_partition
        twin = world.twins[at]
        return (
            twin is not None
            and twin.truncations == truncations
            and world.logs.get(at) is cleaning.log
            and at not in world.logs.futures.logs
            and world.compacts
        )


def _end_of(log: PartitionLog, group: list[LogSegment]) -> int:
    following = [segment.base_offset for segment in log.segments if segment.base_offset > group[-1].base_offset]
    return following[0]


# Steps


def churn(world: World, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
    """Some batches of a few keys, perhaps an aborted transaction; all replicated, and in segments that are full."""
    random = Random(other)
    for _ in range(random.randint(1, 4)):
        world.append(at, world.twin(at), log, random.randrange(1000))
    if random.random() < 0.5:
        world.append(at, world.twin(at), log, 5 * random.randrange(200) + 3)
        for _ in range(random.randrange(3)):
            world.append(at, world.twin(at), log, 5 * random.randrange(200))
    if random.random() < 0.8:
        for _ in range(2):
            world.end_transaction(at, world.twin(at), log, random.choice([0, 2, 2]))
    world.raise_high_watermark(at, world.twin(at), log, 1)
    world.roll(at, world.twin(at), log, 0)


def compact(world: World, one: int, other: int) -> None:
    """The next stages of the compaction in progress, or of a new one."""
    world.cleaner.advance(1 + other % 4, _capacity(other))


def compact_all(world: World, one: int, other: int) -> None:
    """Until nothing is worth it."""
    world.cleaner.finish(_capacity(other))


def compact_once(world: World, one: int, other: int) -> None:
    """One compaction to its end, by a map that may be full before the end of a segment."""
    world.cleaner.finish((None, 2, 3, 4)[other % 4], 1)


def abort(world: World, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
    """A few batches, and an aborted transaction behind them in the same segment; all replicated, and rolled."""
    random = Random(other)
    for _ in range(random.randint(1, 2)):
        world.append(at, world.twin(at), log, 5 * random.randrange(200))
    world.append(at, world.twin(at), log, 5 * random.randrange(200) + 3)
    for _ in range(2):
        world.end_transaction(at, world.twin(at), log, 2)
    world.raise_high_watermark(at, world.twin(at), log, 1)
    world.roll(at, world.twin(at), log, 0)


def repeat(world: World, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
    """Records of one key that fill segments, of which nothing is needed but the last; all replicated, and rolled."""
    segments = len(log.segments) + 2 + other % 2
    for _ in range(_MOST_APPENDS):
        world.append(at, world.twin(at), log, _OF_ONE_KEY)
        if len(log.segments) >= segments:
            break
    world.raise_high_watermark(at, world.twin(at), log, 1)
    world.roll(at, world.twin(at), log, 0)


def begin_behind_a_gap(world: World, at: TopicPartition, twin: Twin, log: PartitionLog, other: int) -> None:
    """Batches of a compacted leader, each behind a gap and synced, until one begins a segment: that one is not synced.

    The segment before it ends at the recovery point then, as one does that has lost all that came behind that point.
    """
    segments = len(log.segments)
    for number in range(_MOST_APPENDS):
        world.sync(at, world.twin(at), log, 0)
        world.append(at, world.twin(at), log, _BEHIND_A_GAP * (other + number))
        if len(log.segments) > segments:
            break


def disturb(world: World, one: int, other: int) -> None:
    """Change a log in the middle of its compaction; then go on with that one and the next, and remove what may go."""
    random = Random(one * 1000 + other)
    if not world.cleaner.advance(random.choice([1, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7]), _capacity(other)):
        return
    at = world.cleaner.at
    if at is None or not world.is_alive(at):
        return
    name = random.choice(_DISTURBANCES)
    if name == "topic":
        world.delete_topic(at.topic)
    elif name == "policy":
        world.change_policy(0, 0)
        world.retain(0, 0)
    else:
        log = world.logs.get(at)
        assert log is not None
        world.change(name, at, world.twin(at), log, random.randrange(1000))
        if name == "move":
            world.go_on_moving(0, random.randrange(1000))
    for _ in range(random.randint(3, 12)):
        world.cleaner.advance(1)
        if random.random() < 0.25:
            world.remove_deleted(0, 0)


def _capacity(other: int) -> int | None:
    return (None, None, None, 2, 4)[other // 4 % 5]
