"""The records in flight of a share partition: batches by first offset, each with one state or one for every record.

Contract: batches do not overlap. A batch has one delivery state until its records differ; from then on each record has
its own, for good. Neighbours whose states have been the same since then may share one (a *run*), so that what a batch
costs depends on how its records differ, not on how many offsets it has: a compressed batch of 1 MB has millions, and a
state that was read back may name any. Offsets in messages to clients and to the share coordinator are inclusive at both
ends, as in Kafka's protocol: ``first_offset`` to ``last_offset``.
Source: InFlightBatch of org.apache.kafka.server.share.fetch; the cached state of SharePartition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tidegauge_broker.share.locks import Locks
from tidegauge_broker.share.states import Delivery, Lock, RecordState

RECORDWISE = 2_000
"""Maximum offsets of a batch that has a run for each of its records once it is split, as Kafka writes them."""
Run = tuple[int, int, Delivery]
"""First offset, last offset and state."""


class InFlightBatch:
    """Records that were acquired together.

    Attributes:
        whole: the state of all records; meaningless once the batch is split.
    """

    __slots__ = ("_firsts", "_runs", "first_offset", "last_offset", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: Delivery) -> None:
        assert first_offset <= last_offset, "a batch has a record at least"
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole = whole
        self._firsts: list[int] = []
        self._runs: dict[int, Run] = {}

    @property
    def is_split(self) -> bool:
        """Whether each record has a state of its own."""
        return bool(self._firsts)

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether all of the batch lies in a range of offsets, both inclusive."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def has_inside(self, offset: int) -> bool:
        """Whether the batch begins before an offset and does not end before it."""
        return self.first_offset < offset <= self.last_offset

    def at(self, offset: int) -> Delivery | None:
        """Return a record's state; None if its offset is not here."""
        if not self.first_offset <= offset <= self.last_offset:
            return None
        if not self.is_split:
            return self.whole
        return self._runs[self._firsts[bisect_right(self._firsts, offset) - 1]][2]

    def runs(self) -> Iterator[Run]:
        """Yield the whole batch, or its runs."""
        return self.runs_in(self.first_offset, self.last_offset)

    def runs_in(self, first_offset: int, last_offset: int) -> Iterator[Run]:
        """Yield what of each run lies in a range of offsets, both inclusive; they may be divided meanwhile."""
        if not self.is_split:
            yield max(first_offset, self.first_offset), min(last_offset, self.last_offset), self.whole
            return
        begin = max(bisect_right(self._firsts, first_offset) - 1, 0)
        for first in self._firsts[begin : bisect_right(self._firsts, last_offset)]:
            _, last, delivery = self._runs[first]
            yield max(first, first_offset), min(last, last_offset), delivery

    def split(self, locks: Locks) -> None:
        """Give each record a state of its own, with a lock that has the batch's deadline.

        A transition of the batch becomes one of each record. Kafka loses it: a release that is being written counts at
        once (InFlightBatch.maybeInitializeOffsetStateUpdate copies no transition).
        """
        if self.is_split:
            return
        lock = self.whole.lock
        self.whole.lock = None if lock is None else _again(lock, self.first_offset, locks)
        self._put(self.first_offset, self.last_offset, self.whole)
        if self.size <= RECORDWISE:
            for offset in range(self.first_offset + 1, self.last_offset + 1):
                self._divide_at(offset, locks)

    def split_after(self, offset: int, locks: Locks, deadline_ms: int, member_id: str) -> None:
        """Give each record a state of its own: up to an offset acquired for the first time, behind it available."""
        lock = locks.add(self.first_offset, offset, deadline_ms)
        self._put(self.first_offset, offset, Delivery(RecordState.ACQUIRED, 1, member_id, lock))
        self._put(offset + 1, self.last_offset, Delivery(RecordState.AVAILABLE, 0))
        if self.size <= RECORDWISE:
            for one in range(self.first_offset + 1, self.last_offset + 1):
                self._divide_at(one, locks)

    def apart(self, first_offset: int, last_offset: int, locks: Locks) -> Delivery:
        """Return a state for a range of offsets alone.

        The range, both inclusive, is within one run.
        """
        self.split(locks)
        self._divide_at(first_offset, locks)
        self._divide_at(last_offset + 1, locks)
        delivery = self.at(first_offset)
        assert delivery is not None, "the batch has these offsets"
        return delivery

    def divide_at(self, offset: int, locks: Locks) -> None:
        """Let the states of the records before an offset and behind it be apart."""
        self.split(locks)
        self._divide_at(offset, locks)

    def _put(self, first_offset: int, last_offset: int, delivery: Delivery) -> None:
        if first_offset not in self._runs:
            self._firsts.insert(bisect_left(self._firsts, first_offset), first_offset)
        self._runs[first_offset] = first_offset, last_offset, delivery

    def _divide_at(self, offset: int, locks: Locks) -> None:
        """Have a run begin at an offset."""
        if not self.has_inside(offset) or offset in self._runs:
            return
        first, last, delivery = self._runs[self._firsts[bisect_right(self._firsts, offset) - 1]]
        self._put(first, offset - 1, delivery)
        self._put(
            offset, last, delivery.copied(None if delivery.lock is None else _again(delivery.lock, offset, locks))
        )


def _again(lock: Lock, offset: int, locks: Locks) -> Lock:
    """Return a lock's second part from an offset on, with its deadline."""
    made = locks.add(offset, lock.last_offset, lock.deadline_ms)
    made.has_expired = lock.has_expired
    lock.last_offset = offset - 1
    lock.is_cancelled = lock.last_offset < lock.first_offset
    return made


class InFlight:
    """All batches of a share partition, in the order of their offsets."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        for first in list(self._firsts):
            yield self._batches[first]

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch, which overlaps no other."""
        position = bisect_left(self._firsts, batch.first_offset)
        before = self._batches[self._firsts[position - 1]] if position else None
        assert before is None or before.last_offset < batch.first_offset, "batches do not overlap"
        assert position == len(self._firsts) or batch.last_offset < self._firsts[position], "batches do not overlap"
        self._firsts.insert(position, batch.first_offset)
        self._batches[batch.first_offset] = batch

    def clear(self) -> None:
        """Remove all batches."""
        self._firsts.clear()
        self._batches.clear()

    def remove_to(self, last_offset: int) -> None:
        """Remove the batches that end at or before an offset, up to the first one that does not."""
        end = 0
        while end < len(self._firsts) and self._batches[self._firsts[end]].last_offset <= last_offset:
            del self._batches[self._firsts[end]]
            end += 1
        del self._firsts[:end]

    @property
    def first(self) -> InFlightBatch | None:
        """The batch with the lowest offsets."""
        return self._batches[self._firsts[0]] if self._firsts else None

    @property
    def last(self) -> InFlightBatch | None:
        """The batch with the highest offsets."""
        return self._batches[self._firsts[-1]] if self._firsts else None

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before an offset."""
        position = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[position - 1]] if position else None

    def above(self, offset: int) -> InFlightBatch | None:
        """Return the first batch that begins above an offset."""
        position = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[position]] if position < len(self._firsts) else None

    def between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches that begin in a range of offsets, both inclusive."""
        begin, end = bisect_left(self._firsts, first_offset), bisect_right(self._firsts, last_offset)
        return [self._batches[first] for first in self._firsts[begin:end]]
