"""The delivery window of a share partition: from its start offset (SPSO) to its end offset (SPEO).

Contract: records before the start offset are never delivered again, those after the end offset have not been delivered
yet. The end offset is the last one that was ever acquired, inclusive; while nothing is in flight both are the offset
that is fetched next. The start offset moves over a prefix of records in terminal states.
Source: SharePartition (nextFetchOffset, maybeUpdateCachedStateAndOffsets, updateCacheAndOffsets); KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegauge_broker.share.batches import InFlight, InFlightBatch
from tidegauge_broker.share.locks import Locks
from tidegauge_broker.share.states import RecordState


@dataclass(slots=True)
class Gap:
    """The holes in a state that was read back: no one knows whether their records were delivered, so they are.

    Attributes:
        first_offset: up to here holes have been delivered.
        end_offset: the last offset of the state; the gap ends when the window's end moves beyond it.
    """

    first_offset: int
    end_offset: int


@dataclass(slots=True)
class Window:
    """The window.

    Attributes:
        start_offset: SPSO.
        end_offset: SPEO.
        complete_count: records in terminal states at or after the start offset, for the group's lag (KIP-1226).
        looks_for_available: whether records in flight may be available; else the next fetch is at the end.
        gap: None: there is none.
    """

    start_offset: int = 0
    end_offset: int = 0
    complete_count: int = 0
    looks_for_available: bool = False
    gap: Gap | None = None
    in_flight: InFlight = field(default_factory=InFlight)
    locks: Locks = field(default_factory=Locks)

    # Queries

    @property
    def records_in_flight(self) -> int:
        """Number of offsets from start to end, 0 while nothing is in flight: gaps and completed records count."""
        return self.end_offset - self.start_offset + 1 if len(self.in_flight) else 0

    @property
    def active_gap(self) -> Gap | None:
        """The gap, while holes are acquired; see ``Gap``."""
        gap = self.gap
        return gap if gap is not None and gap.end_offset == self.end_offset else None

    def next_fetch_offset(self) -> int:
        """Return the next offset to read the log at.

        It is the first available record's or hole's, else the one after the end.
        """
        last = self.in_flight.last
        if last is None or self.start_offset > last.last_offset:
            self.looks_for_available = False
            return self.end_offset
        if self.looks_for_available:
            found = self._first_available()
            if found is not None:
                return found
            self.looks_for_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gap = self.active_gap
        hole = None if gap is None else gap.first_offset
        for batch in self.in_flight:
            if hole is not None:
                if batch.first_offset > hole:
                    return hole
                hole = max(batch.last_offset + 1, hole)
            for first_offset, _, delivery in batch.runs():
                if delivery.is_acquirable:
                    return first_offset
        return None

    def count_inside(self, first_offset: int, last_offset: int) -> int:
        """Return a range's count of offsets from the start offset on."""
        return max(last_offset - max(first_offset, self.start_offset) + 1, 0)

    # Changes

    def narrow_gap(self, offset: int) -> None:
        """Take note that holes before an offset have been acquired; the gap ends with the last of them."""
        gap = self.gap
        if gap is not None and offset <= gap.end_offset:
            gap.first_offset = offset
        else:
            self.gap = None

    def advance_start(self) -> bool:
        """Move the start offset over the records that are completed, and forget them; return whether it may move."""
        if not self._is_start_complete():
            return False
        last_complete, completed = self._complete_prefix()
        if last_complete is None:
            return False
        last = self.in_flight.last
        assert last is not None, "a completed record is in flight"
        if last_complete == last.last_offset:
            self.start_offset = self.end_offset = last_complete + 1
            self.in_flight.clear()
            self.complete_count = 0
            return True
        batch = self.in_flight.floor(last_complete)
        assert batch is not None, "a completed record is in flight"
        if batch.last_offset == last_complete:
            following = self.in_flight.above(last_complete)
            assert following is not None, "it is not the last batch"
            start_offset = following.first_offset
            if self.active_gap is not None:
                start_offset = min(self.active_gap.first_offset, max(start_offset, self.start_offset))
        else:
            start_offset = last_complete + 1
        self.start_offset = max(start_offset, self.start_offset)
        assert self.start_offset <= self.end_offset, "a batch in flight follows, and none lies beyond the end offset"
        self.complete_count -= completed
        self.in_flight.remove_to(last_complete)
        return True

    def _is_start_complete(self) -> bool:
        batch = self.in_flight.floor(self.start_offset)
        if batch is None:
            return False
        delivery = batch.at(self.start_offset) if batch.is_split else batch.whole
        return delivery is not None and not delivery.is_in_transition and delivery.state.is_terminal

    def _complete_prefix(self) -> tuple[int | None, int]:
        """Return the completed front's last offset, and its count in the window."""
        last_complete: int | None = None
        completed = 0
        gap = self.active_gap
        for batch in self.in_flight:
            if gap is not None and batch.last_offset >= gap.first_offset:
                break
            for first_offset, last_offset, delivery in batch.runs():
                if delivery.is_in_transition or not delivery.state.is_terminal:
                    return last_complete, completed
                last_complete = last_offset
                completed += self.count_inside(first_offset, last_offset)
        return last_complete, completed

    def move_log_start(self, log_start_offset: int) -> None:
        """Move the start offset to a log start beyond it, and archive the available records before that.

        Records that members have acquired stay with them until they are acknowledged or their locks time out. Nothing
        is persisted: the next write of the partition has the new start offset.
        """
        if log_start_offset <= self.start_offset:
            return
        if not len(self.in_flight):
            self.start_offset = self.end_offset = log_start_offset
            self.complete_count = 0
            return
        removed = self._count_complete_before(log_start_offset)
        if self.archive(
            self.in_flight, self.start_offset, log_start_offset - 1, RecordState.AVAILABLE, counts_as_complete=False
        ):
            self.looks_for_available = True
        self.start_offset = log_start_offset
        self.complete_count -= removed
        self.end_offset = max(self.end_offset, log_start_offset)

    def _count_complete_before(self, offset: int) -> int:
        return sum(
            self.count_inside(first_offset, min(last_offset, offset - 1))
            for batch in self.in_flight
            if batch.first_offset < offset
            for first_offset, last_offset, delivery in batch.runs()
            if delivery.state.is_terminal
        )

    def archive_before_start(self, first_offset: int, last_offset: int) -> None:
        """Archive the available records of a range of offsets, both inclusive, that the start offset has passed."""
        if first_offset < self.start_offset:
            last_offset = min(last_offset, self.start_offset - 1)
            self.archive(self.in_flight, first_offset, last_offset, RecordState.AVAILABLE, counts_as_complete=False)

    def archive(
        self,
        batches: Iterable[InFlightBatch],
        first_offset: int,
        last_offset: int,
        state: RecordState,
        *,
        counts_as_complete: bool,
    ) -> bool:
        """Archive the records of a range of offsets, both inclusive, that are in a state; return whether any was."""
        archived = 0
        for batch in batches:
            if batch.first_offset > last_offset or batch.last_offset < first_offset:
                continue
            if not batch.is_split:
                if batch.whole.state is not state:
                    continue
                if batch.is_within(first_offset, last_offset):
                    batch.whole.archive()
                    archived += batch.size
                    continue
                batch.split(self.locks)
            for first, last, delivery in batch.runs_in(first_offset, last_offset):
                if delivery.state is state:
                    batch.apart(first, last, self.locks).archive()
                    archived += last - first + 1
        if counts_as_complete:
            self.complete_count += archived
        return archived > 0
