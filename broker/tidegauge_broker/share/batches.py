"""The records in flight of a share partition: batches by first offset, each with one state or one for every record.

Contract: batches do not overlap. A batch has one delivery state until its records differ; from then on it has one for
each offset, for good. Offsets in messages to clients and to the share coordinator are inclusive at both ends, as in
Kafka's protocol: ``first_offset`` to ``last_offset``.
Source: InFlightBatch of org.apache.kafka.server.share.fetch; the cached state of SharePartition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tidegauge_broker.share.locks import Locks
from tidegauge_broker.share.states import Delivery, RecordState


class InFlightBatch:
    """Records that were acquired together.

    Attributes:
        whole: the state of all records; meaningless once ``by_offset`` is there.
        by_offset: the state of each record; None: they have the same.
    """

    __slots__ = ("by_offset", "first_offset", "last_offset", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: Delivery) -> None:
        assert first_offset <= last_offset, "a batch has a record at least"
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole = whole
        self.by_offset: dict[int, Delivery] | None = None

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Return whether all of the batch lies in a range of offsets, both inclusive."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def has_inside(self, offset: int) -> bool:
        """Return whether the batch begins before an offset and does not end before it."""
        return self.first_offset < offset <= self.last_offset

    def deliveries(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, Delivery]]:
        """Yield offset and state of the records of a split batch in a range of offsets, both inclusive."""
        assert self.by_offset is not None, "the batch has one state for all records"
        for offset in range(max(first_offset, self.first_offset), min(last_offset, self.last_offset) + 1):
            yield offset, self.by_offset[offset]

    def runs(self) -> Iterator[tuple[int, int, Delivery]]:
        """Yield first offset, last offset and state: of the whole batch, or of each record."""
        if self.by_offset is None:
            yield self.first_offset, self.last_offset, self.whole
        else:
            for offset, delivery in self.by_offset.items():
                yield offset, offset, delivery

    def split(self, locks: Locks) -> dict[int, Delivery]:
        """Give each record a state of its own, with a lock of its own that has the batch's deadline.

        A transition of the batch becomes one of each record. Kafka loses it: a release that is being written counts at
        once (InFlightBatch.maybeInitializeOffsetStateUpdate copies no transition).
        """
        if self.by_offset is None:
            whole = self.whole
            deadline_ms = None if whole.lock is None else whole.lock.deadline_ms
            self.by_offset = {
                offset: whole.copied(None if deadline_ms is None else locks.add(offset, offset, deadline_ms))
                for offset in range(self.first_offset, self.last_offset + 1)
            }
            if whole.is_in_transition:
                whole.parts = tuple(self.by_offset.values())
            whole.cancel_lock()
        return self.by_offset

    def split_after(self, offset: int, locks: Locks, deadline_ms: int, member_id: str) -> None:
        """Give each record a state of its own: up to an offset acquired for the first time, behind it available."""
        self.by_offset = {
            one: Delivery(RecordState.ACQUIRED, 1, member_id, locks.add(one, one, deadline_ms))
            if one <= offset
            else Delivery(RecordState.AVAILABLE, 0)
            for one in range(self.first_offset, self.last_offset + 1)
        }


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
