"""The acquisition locks of a share partition: a delivery that is not acknowledged in time is given back.

Contract: locks time out in the order of their deadlines, with one deadline in the order in which they were made. A
turn takes those that were due when it began; one that an earlier of them has cancelled is skipped.
Source: AcquisitionLockTimerTask; SharePartition.releaseAcquisitionLockOnTimeout.
"""

from __future__ import annotations

import heapq

from tidegauge_broker.share.states import Lock

COMPACTION_MINIMUM = 1000
"""Maximum number of cancelled locks in the heap, beyond twice as many as are held, before it is compacted."""


class Locks:
    """All locks that are held."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Lock]] = []
        self._sequence = 0
        self._compact_at = COMPACTION_MINIMUM

    def add(self, first_offset: int, last_offset: int, deadline_ms: int) -> Lock:
        """Return a new lock on a range of offsets, both inclusive."""
        lock = Lock(first_offset, last_offset, deadline_ms)
        self._sequence += 1
        heapq.heappush(self._queue, (deadline_ms, self._sequence, lock))
        if len(self._queue) > self._compact_at:
            self._queue = [entry for entry in self._queue if not entry[2].is_cancelled]
            heapq.heapify(self._queue)
            self._compact_at = 2 * len(self._queue) + COMPACTION_MINIMUM
        return lock

    def take_expired(self, now_ms: int) -> list[Lock]:
        """Return the locks whose deadline has passed; they are held no longer."""
        found: list[Lock] = []
        while self._queue and self._queue[0][0] <= now_ms:
            lock = heapq.heappop(self._queue)[2]
            if not lock.is_cancelled:
                found.append(lock)
        return found

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline; None if no lock is held."""
        while self._queue and self._queue[0][2].is_cancelled:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None
