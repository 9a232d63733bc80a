"""One share partition at its leader: a partition's records in flight to the members of one share group.

Contract: events in, effects out; time is an argument. Acquisitions are kept in memory only; acknowledgements
are written to the share coordinator first and count then. A lock that times out counts at once, whether its write
succeeds or not. A leader that the share coordinator has fenced, by its leader epoch or by the state epoch, drops the
partition. Whether a member belongs to the group, or has the partition assigned, is not looked at.
Source: SharePartition of kafka.server.share; KIP-932.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import NO_START_OFFSET, StateBatch
from tidegauge_broker.share.aborted import without_aborted
from tidegauge_broker.share.acknowledging import Acknowledgement, AcknowledgementRefused, Transitions
from tidegauge_broker.share.acquiring import Acquired, Acquisition, Read, Wanted
from tidegauge_broker.share.batches import InFlightBatch
from tidegauge_broker.share.effects import (
    Dropped,
    Effect,
    FindStartOffset,
    Opened,
    ReadState,
    RecordsMayBeAvailable,
    Respond,
    WriteState,
)
from tidegauge_broker.share.settings import ShareSettings
from tidegauge_broker.share.states import Delivery, Lock, RecordState
from tidegauge_broker.share.window import Gap, Window

_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The client's error for an error of the share coordinator; UNKNOWN_SERVER_ERROR for every other one."""
_FENCING = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""After these errors a partition is dropped (SharePartitionManager.handleFencedSharePartitionException)."""


MAX_DELIVERY_COUNT = 2**15 - 1
MAX_OFFSET = 2**63 - 1
"""The largest offset in the fields of Kafka's messages."""


class _Write(NamedTuple):
    """A write of acknowledgements or of a release."""

    token: object
    transitions: Transitions


class PartitionState(Enum):
    """The state of a share partition (SharePartitionState)."""

    EMPTY = "empty"
    INITIALIZING = "initializing"
    ACTIVE = "active"
    FAILED = "failed"
    FENCED = "fenced"


class SharePartition:
    """A share partition.

    Args:
        leader_epoch: of the partition's leader, this broker.
        settings: of the group.

    Attributes:
        settings: may be replaced at any time; locks that are held keep their deadlines.
        window: the records in flight.
        state_epoch: of the state that was read; writes carry it.
        timed_out_count: records whose locks have timed out.
    """

    def __init__(self, leader_epoch: int, settings: ShareSettings) -> None:
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.window = Window()
        self.state = PartitionState.EMPTY
        self.state_epoch = 0
        self._read_batches: tuple[StateBatch, ...] = ()
        self._writes: dict[int, _Write | None] = {}
        self._last_write_id = 0
        self.timed_out_count = 0

    # Loading

    def initialize(self) -> list[Effect]:
        """Begin to load the state; a partition that has begun, or has failed, does not begin again."""
        if self.state is not PartitionState.EMPTY:
            return []
        self.state = PartitionState.INITIALIZING
        return [ReadState(self.leader_epoch)]

    def state_read(
        self,
        error: ErrorCode,
        message: str | None = None,
        state_epoch: int = 0,
        start_offset: int = NO_START_OFFSET,
        batches: Sequence[StateBatch] = (),
    ) -> list[Effect]:
        """Take the outcome of a ``ReadState``."""
        if self.state is not PartitionState.INITIALIZING:
            return []
        if error is not ErrorCode.NONE:
            return self._fail(_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR), message)
        self.state_epoch = state_epoch
        self._read_batches = tuple(batches)
        if start_offset == NO_START_OFFSET:
            return [FindStartOffset(self.settings.auto_offset_reset)]
        return self._open(start_offset)

    def start_offset_found(self, error: ErrorCode, offset: int = NO_START_OFFSET) -> list[Effect]:
        """Take the outcome of a ``FindStartOffset``; it is persisted with the first write."""
        if self.state is not PartitionState.INITIALIZING:
            return []
        if error is not ErrorCode.NONE:
            return self._fail(error, None)
        return self._open(offset)

    def _open(self, start_offset: int) -> list[Effect]:
        """Take in the state that was read; a state that makes no sense fails this partition alone."""
        problem = _incoherence(start_offset, self._read_batches)
        if problem:
            return self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, problem)
        window = self.window
        window.start_offset = window.end_offset = start_offset
        first_hole: int | None = None
        following = start_offset
        for batch in self._read_batches:
            if first_hole is None and batch.first_offset > following:
                first_hole = following
            following = batch.last_offset + 1
            state = RecordState(batch.state)
            delivery = Delivery(state, batch.delivery_count)
            window.in_flight.add(InFlightBatch(batch.first_offset, batch.last_offset, delivery))
            if state.is_terminal:
                window.complete_count += batch.last_offset - batch.first_offset + 1
        if self._read_batches:
            window.end_offset = following - 1
            window.looks_for_available = True
            if first_hole is not None:
                window.gap = Gap(first_hole, window.end_offset)
            window.advance_start()
        self._read_batches = ()
        self.state = PartitionState.ACTIVE
        return [Opened()]

    def _fail(self, error: ErrorCode, message: str | None) -> list[Effect]:
        self.state = PartitionState.FAILED
        return [Opened(error, message), Dropped()]

    # Fetches

    def next_fetch_offset(self) -> int:
        """Return where the log is read next."""
        return self.window.next_fetch_offset()

    def can_acquire(self) -> bool:
        """Whether a read may bring records: the window has room, or records inside it are available."""
        if self.state is not PartitionState.ACTIVE:
            return False
        window = self.window
        if window.next_fetch_offset() != window.end_offset + 1:
            return True
        return window.records_in_flight < self.settings.max_record_locks

    def acquire(self, member_id: str, read: Read, wanted: Wanted, now_ms: int) -> list[Acquired]:
        """Give records that were read to a member, and return them; nothing of it is persisted."""
        if self.state is not PartitionState.ACTIVE or wanted.max_records <= 0 or not read.batches:
            return []
        if read.batches[-1].last_offset < self.window.start_offset:
            return []  # the start has moved past the read since it was begun
        acquired = Acquisition(self.window, self.settings, member_id, read, wanted, now_ms).acquire()
        if self.settings.reads_committed and read.aborted:
            return without_aborted(self.window, read, acquired)
        return acquired

    def log_start_moved(self, log_start_offset: int) -> None:
        """Take note that the log now begins at an offset, as a read beyond its range has shown."""
        if self.state is PartitionState.ACTIVE:
            self.window.move_log_start(log_start_offset)

    # Acknowledgements

    def acknowledge(
        self, token: object, member_id: str, batches: Sequence[Acknowledgement], now_ms: int
    ) -> list[Effect]:
        """Take a member's acknowledgements; ``Respond`` follows now, or when they are written."""
        if self.state is not PartitionState.ACTIVE:
            return [Respond(token, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        transitions = Transitions(self.window, self.settings, now_ms)
        try:
            transitions.acknowledge(member_id, batches)
        except AcknowledgementRefused as refusal:
            return [Respond(token, refusal.error, refusal.message)]
        return self._write(token, transitions)

    def release(self, token: object, member_id: str, now_ms: int) -> list[Effect]:
        """Release all records that a member has acquired, because its share session ends; as ``acknowledge``."""
        transitions = Transitions(self.window, self.settings, now_ms)
        transitions.release(member_id)
        return self._write(token, transitions)

    def _write(self, token: object, transitions: Transitions) -> list[Effect]:
        if not transitions.begun:
            return [Respond(token)]
        return [self._next_write(transitions.batches, _Write(token, transitions))]

    def _next_write(self, batches: tuple[StateBatch, ...], write: _Write | None) -> WriteState:
        self._last_write_id += 1
        self._writes[self._last_write_id] = write
        window = self.window
        return WriteState(
            self._last_write_id,
            self.state_epoch,
            self.leader_epoch,
            window.start_offset,
            window.complete_count,
            batches,
        )

    def state_written(self, write_id: int, error: ErrorCode, message: str | None = None) -> list[Effect]:
        """Take the outcome of a ``WriteState``; a second one is ignored."""
        if write_id not in self._writes:
            return []
        write = self._writes.pop(write_id)
        if write is None:
            # Locks have timed out: the records are given back, whether that is written or not.
            return [RecordsMayBeAvailable()] if self.window.advance_start() else []
        if error is ErrorCode.NONE:
            moved = write.transitions.complete()
            is_news = moved or self.window.looks_for_available
            return [Respond(write.token), *([RecordsMayBeAvailable()] if is_news else [])]
        write.transitions.roll_back()
        shown = _ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)
        effects: list[Effect] = [Respond(write.token, shown, message)]
        # A record whose lock has ended meanwhile may be archived by the roll-back. Kafka does not look at the start
        # then; if all records of a full window are completed, nothing else would ever move it.
        if self.window.advance_start():
            effects.append(RecordsMayBeAvailable())
        if shown in _FENCING:
            effects += self.fence()
        return effects

    # Locks

    def next_deadline_ms(self) -> int | None:
        """Return when the next lock times out; None if no lock is held."""
        return self.window.locks.next_deadline_ms()

    def expire(self, now_ms: int) -> list[Effect]:
        """Give back the records whose locks have timed out, with one write for each lock."""
        effects: list[Effect] = []
        for lock in self.window.locks.take_expired(now_ms):
            if lock.is_cancelled:
                continue
            lock.has_expired = True
            self.timed_out_count += lock.last_offset - lock.first_offset + 1
            released = self._time_out(lock)
            if released:
                effects.append(self._next_write(tuple(released), None))
        if effects:
            effects.append(RecordsMayBeAvailable())
        return effects

    def _time_out(self, lock: Lock) -> list[StateBatch]:
        window = self.window
        first_locked, last_locked = lock.first_offset, lock.last_offset
        floor = window.in_flight.floor(first_locked)
        if floor is None:
            return []
        released: list[StateBatch] = []
        for batch in window.in_flight.between(floor.first_offset, last_locked):
            if first_locked < window.start_offset <= last_locked and batch.has_inside(window.start_offset):
                batch.divide_at(window.start_offset, window.locks)
            for first_offset, last_offset, found in batch.runs_in(first_locked, last_locked):
                if found.may_become(RecordState.AVAILABLE):
                    delivery = batch.apart(first_offset, last_offset, window.locks) if batch.is_split else found
                    released.append(self._give_back(first_offset, last_offset, delivery))
        return released

    def _give_back(self, first_offset: int, last_offset: int, delivery: Delivery) -> StateBatch:
        window = self.window
        state = RecordState.ARCHIVED if last_offset < window.start_offset else RecordState.AVAILABLE
        state = delivery.give_back(state, self.settings.delivery_count_limit)
        delivery.cancel_lock()
        if state.is_terminal:
            window.complete_count += window.count_inside(first_offset, last_offset)
        else:
            window.looks_for_available = True
        return StateBatch(first_offset, last_offset, state, delivery.delivery_count)

    # The end

    def fence(self) -> list[Effect]:
        """Stop serving the partition: this broker leads it no longer, or its state has another writer."""
        if self.state is PartitionState.FENCED:
            return []
        self.state = PartitionState.FENCED
        return [Dropped()]


def _incoherence(start_offset: int, batches: Sequence[StateBatch]) -> str:
    """Return why a loaded state cannot be served, as a sentence, or empty."""
    if not 0 <= start_offset <= MAX_OFFSET:
        return f"The share group state begins at the offset {start_offset}."
    following = start_offset
    for batch in batches:
        shown = f"{batch.first_offset} to {batch.last_offset}"
        if batch.first_offset < following or batch.last_offset < batch.first_offset:
            return f"The share group state has the offsets {shown} where offsets from {following} on are expected."
        if batch.state not in _PERSISTED:
            return f"The share group state has the offsets {shown} in the unknown state {batch.state}."
        if not 0 <= batch.delivery_count < MAX_DELIVERY_COUNT or batch.last_offset >= MAX_OFFSET:
            return (
                f"The share group state has the offsets {shown} with {batch.delivery_count} deliveries; neither offset "
                "nor number has a successor that can be written."
            )
        following = batch.last_offset + 1
    return ""


_PERSISTED = frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
