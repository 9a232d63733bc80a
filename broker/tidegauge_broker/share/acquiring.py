"""Acquisition: records that were read from the log are given to a member.

Contract: records that are in flight and available are given again, one batch or one record at a time; records that are
not in flight yet are taken into the window. A batch of the log is never divided, but in the mode RECORD_LIMIT, where
the rest of it stays available. A record that has been delivered often is delivered with fewer others, and alone the
last time, so that one that cannot be processed does not take others with it.
Source: SharePartition.acquire, acquireNewBatchRecords, acquireSubsetBatchRecords, shouldThrottleRecordsDelivery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegauge_broker.share.batches import InFlightBatch
from tidegauge_broker.share.settings import AcquireMode, ShareSettings
from tidegauge_broker.share.states import Delivery, RecordState
from tidegauge_broker.share.window import Window

_LONE_DELIVERY_LIMIT = 2
"""With a limit of at most this many deliveries the last one is not made alone."""


class LogBatch(NamedTuple):
    """A batch of the log that was read, without its records.

    Attributes:
        producer_id: -1: it has none.
        is_abort_marker: whether it is the control batch that aborts its producer's transaction.
    """

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort_marker: bool = False


class AbortedTransaction(NamedTuple):
    """An aborted transaction that overlaps a read, as the log's index has it."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Read:
    """A read of the log for a share partition.

    Attributes:
        fetch_offset: where the read began; its first batch may begin before that.
        batches: in log order.
        aborted: the aborted transactions, if the group reads committed records only.
    """

    fetch_offset: int
    batches: Sequence[LogBatch]
    aborted: Sequence[AbortedTransaction] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A member's request.

    Attributes:
        max_records: how many records; see ``mode``.
        batch_size: number of records from which on batches of the log are acquired apart from one another.
    """

    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquired(NamedTuple):
    """Offsets that a member has acquired, both inclusive, and the number of this delivery of theirs."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1


class Acquisition:
    """One acquisition.

    Args:
        window: of the share partition.
        settings: of its group.
        member_id: the member that fetches.
        read: the read, with one batch at least.
        wanted: the member's request.
        now_ms: the time; locks are held from now on.
    """

    def __init__(
        self, window: Window, settings: ShareSettings, member_id: str, read: Read, wanted: Wanted, now_ms: int
    ) -> None:
        self._window = window
        self._settings = settings
        self._member_id = member_id
        self._read = read
        self._wanted = wanted
        self._is_exact = wanted.mode is AcquireMode.RECORD_LIMIT
        self._deadline_ms = now_ms + settings.record_lock_duration_ms
        self._first_read = read.batches[0].base_offset
        self._last_offset = read.batches[-1].last_offset
        self._left = 0
        self._found: list[Acquired] = []

    def acquire(self) -> list[Acquired]:
        """Give the records to the member, and return them in the order of their offsets."""
        self._limit()
        if self._left <= 0:
            return []
        self._archive_compacted()
        first_offset = self._first_offset()
        batches = self._window.in_flight.between(min(self._first_read, first_offset), self._last_offset)
        if batches:
            self._acquire_over(batches, first_offset)
            if self._found:
                self._window.narrow_gap(self._found[-1].last_offset + 1)
        else:
            self._acquire_new(first_offset, self._last_offset)
        return self._found

    def _limit(self) -> None:
        """Set how many records may be acquired, and up to which offset."""
        window, wanted = self._window, self._wanted.max_records
        self._left = min(wanted, self._settings.max_record_locks - window.records_in_flight)
        if self._left <= 0 and self._read.fetch_offset <= window.end_offset:
            # The window is full, but records inside it may be delivered again.
            self._left = min(wanted, window.end_offset - self._read.fetch_offset + 1)
            self._last_offset = min(self._last_offset, window.end_offset)

    def _archive_compacted(self) -> None:
        """Archive available records that the read should have begun with: compaction has removed them."""
        fetch_offset, window = self._read.fetch_offset, self._window
        if fetch_offset >= self._first_read or not len(window.in_flight):
            return
        floor = window.in_flight.floor(fetch_offset)
        first = floor.first_offset if floor is not None and floor.last_offset >= fetch_offset else fetch_offset
        batches = window.in_flight.between(first, self._first_read - 1)
        if window.archive(batches, fetch_offset, self._first_read - 1, RecordState.AVAILABLE, counts_as_complete=True):
            window.looks_for_available = True

    def _first_offset(self) -> int:
        """Return where the batches in flight begin that the read overlaps."""
        floor = self._window.in_flight.floor(self._first_read)
        if floor is None:
            return max(self._first_read, self._window.start_offset)
        return floor.first_offset if floor.last_offset >= self._first_read else self._first_read

    # Records in flight

    def _acquire_over(self, batches: Sequence[InFlightBatch], first_offset: int) -> None:
        """Acquire the available records of batches in flight, the holes that are to be delivered, and the rest."""
        hole = first_offset
        for batch in batches:
            if self._left <= 0:
                break
            if self._window.active_gap is not None:
                if hole < batch.first_offset:
                    self._acquire_new(hole, batch.first_offset - 1)
                hole = batch.last_offset + 1
                if self._left <= 0:
                    break
            if not self._acquire_again(batch):
                return
        last = batches[-1].last_offset
        if self._left > 0 and last < self._last_offset:
            self._acquire_new(last + 1, self._last_offset)

    def _acquire_again(self, batch: InFlightBatch) -> bool:
        """Acquire the available records of a batch in flight; return whether others may be acquired beside it."""
        is_throttled = self._is_throttled(batch)
        if is_throttled and self._found:
            return False
        is_whole = (
            not batch.is_split
            and batch.is_within(self._first_read, self._last_offset)
            and not is_throttled
            and not (self._is_exact and batch.size > self._left)
        )
        if not batch.is_split and not batch.whole.is_acquirable:
            return True
        if is_whole:
            self._lock(batch.whole, batch.first_offset, batch.last_offset)
            self._take(Acquired(batch.first_offset, batch.last_offset, batch.whole.delivery_count))
            return True
        batch.split(self._window.locks)
        return not (self._acquire_records(batch) and is_throttled)

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        """Whether available records of a batch have been delivered so often that fewer are delivered at once."""
        count = self._settings.throttle_count
        if not batch.is_split:
            return batch.whole.is_acquirable and batch.whole.delivery_count >= count
        return any(
            delivery.is_acquirable and delivery.delivery_count >= count
            for _, _, delivery in batch.runs_in(self._first_read, self._last_offset)
        )

    def _acquire_records(self, batch: InFlightBatch) -> int:
        """Acquire available records of a split batch, each for itself; return how many.

        A throttled record halves the number of records that are acquired of the batch, unless more came before it:
        Kafka stops at just that number (SharePartition.acquireSubsetBatchRecords).
        """
        limit = self._settings.delivery_count_limit
        ends = {self._left} if self._is_exact else set[int]()
        is_limited_by_throttle = False
        records: list[Acquired] = []
        count = 0
        for first_offset, last_offset, found in batch.runs_in(self._first_read, self._last_offset):
            if not found.is_acquirable:
                continue
            is_last_delivery = limit > _LONE_DELIVERY_LIMIT and found.delivery_count == limit - 1
            if is_last_delivery and records:
                break
            if found.delivery_count >= self._settings.throttle_count and not is_limited_by_throttle:
                is_limited_by_throttle = True
                shift = found.delivery_count - self._settings.throttle_count + 1
                ends.add(max(1, batch.size >> shift))
            size = last_offset - first_offset + 1
            room = 1 if is_last_delivery else min((end - count for end in ends if end > count), default=size)
            last_acquired = first_offset + min(size, room) - 1
            delivery = batch.apart(first_offset, last_acquired, self._window.locks)
            self._lock(delivery, first_offset, last_acquired)
            records.append(Acquired(first_offset, last_acquired, delivery.delivery_count))
            count += records[-1].size
            if is_last_delivery or count in ends:
                break
        for one in _joined(records):
            self._take(one)
        return count

    def _lock(self, delivery: Delivery, first_offset: int, last_offset: int) -> None:
        delivery.acquire(self._member_id)
        delivery.lock = self._window.locks.add(first_offset, last_offset, self._deadline_ms)

    def _take(self, acquired: Acquired) -> None:
        assert acquired.last_offset <= self._window.end_offset, "acquired records are in flight, up to the end offset"
        assert not self._found or self._found[-1].last_offset < acquired.first_offset, "in the order of their offsets"
        self._found.append(acquired)
        self._left -= acquired.size

    # Records that are not in flight

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Take records of a range of offsets, both inclusive, into the window, as many as are requested."""
        window = self._window
        if not len(window.in_flight):
            first_offset = max(first_offset, window.end_offset)
        following = window.in_flight.above(first_offset)
        if self._left < last_offset - first_offset + 1:
            last_offset = self._end_of_batch(first_offset + self._left - 1)
        if following is not None:
            last_offset = min(last_offset, following.first_offset - 1)
        if last_offset < first_offset:
            return
        taken = self._into_window(first_offset, last_offset)
        first = window.in_flight.first
        if first is not None and first.first_offset == first_offset:
            window.start_offset = first_offset
        window.end_offset = max(window.end_offset, last_offset)
        for one in taken:
            self._take(one)
        window.narrow_gap(taken[-1].last_offset + 1)

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of an offset's batch in the read, if any."""
        for batch in self._read.batches:
            if batch.base_offset <= offset <= batch.last_offset:
                return batch.last_offset
        return offset

    def _into_window(self, first_offset: int, last_offset: int) -> list[Acquired]:
        window = self._window
        if self._is_exact and last_offset - first_offset + 1 > self._left:
            last_acquired = first_offset + self._left - 1
            batch = InFlightBatch(first_offset, last_offset, Delivery(RecordState.ACQUIRED, 1, self._member_id))
            batch.split_after(last_acquired, window.locks, self._deadline_ms, self._member_id)
            window.in_flight.add(batch)
            window.looks_for_available = True
            return [Acquired(first_offset, last_acquired, 1)]
        acquired = [Acquired(*bounds, 1) for bounds in self._bounds(first_offset, last_offset)]
        for one in acquired:
            lock = window.locks.add(one.first_offset, one.last_offset, self._deadline_ms)
            delivery = Delivery(RecordState.ACQUIRED, 1, self._member_id, lock)
            window.in_flight.add(InFlightBatch(one.first_offset, one.last_offset, delivery))
        return acquired

    def _bounds(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Divide a range of offsets where batches of the log begin, into parts of the requested size at least."""
        size = self._wanted.batch_size
        bounds: list[tuple[int, int]] = []
        if not self._is_exact and last_offset - first_offset + 1 > size:
            for batch in self._read.batches:
                if batch.base_offset > last_offset:
                    break
                if batch.base_offset - first_offset >= size:
                    bounds.append((first_offset, batch.base_offset - 1))
                    first_offset = batch.base_offset
        return [*bounds, (first_offset, last_offset)]


def _joined(records: Sequence[Acquired]) -> list[Acquired]:
    """Join neighbours that have the same delivery count."""
    joined: list[Acquired] = []
    for one in records:
        last = joined[-1] if joined else None
        if last is not None and last.last_offset + 1 == one.first_offset and last.delivery_count == one.delivery_count:
            joined[-1] = last._replace(last_offset=one.last_offset)
        else:
            joined.append(one)
    return joined
