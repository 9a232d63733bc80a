"""Acknowledgements: what a member says of the records that it has acquired, and their release when its session ends.

Contract: a request is accepted for a partition as a whole or not at all: the first batch or record that is refused
takes back every transition that the request has begun. Transitions are complete when the share coordinator has written
them. A renewal changes no state, and counts at once.
Source: SharePartition (acknowledge, acknowledgeBatchRecords, releaseAcquiredRecords, rollbackOrProcessStateUpdates).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import StateBatch
from tidegauge_broker.share.batches import InFlightBatch, Run
from tidegauge_broker.share.settings import ShareSettings
from tidegauge_broker.share.states import STATE_AFTER, AcknowledgeType, Delivery, RecordState
from tidegauge_broker.share.window import Window


class AcknowledgementRefused(Exception):
    """An acknowledgement is refused.

    Attributes:
        error: INVALID_RECORD_STATE or INVALID_REQUEST.
        message: for the client.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of a range of offsets, both inclusive.

    Attributes:
        types: one for all offsets, or one for each.
    """

    first_offset: int
    last_offset: int
    types: tuple[int, ...]

    def type_of(self, offset: int) -> AcknowledgeType:
        """Return the type for an offset."""
        return AcknowledgeType(self.types[0] if len(self.types) == 1 else self.types[offset - self.first_offset])

    def alike(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, int, AcknowledgeType]]:
        """Yield the parts of a range of its offsets of which the same is said: first offset, last offset and type."""
        if len(self.types) == 1:
            yield first_offset, last_offset, AcknowledgeType(self.types[0])
            return
        begin = first_offset
        for one, said in groupby(self.types[first_offset - self.first_offset : last_offset - self.first_offset + 1]):
            end = begin + sum(1 for _ in said)
            yield begin, end - 1, AcknowledgeType(one)
            begin = end


class Begun(NamedTuple):
    """A transition that waits for its write."""

    in_flight: InFlightBatch
    batch: StateBatch

    def runs(self) -> Iterator[Run]:
        """Yield first offset, last offset and state: of the whole, or of its parts if it was divided since."""
        return self.in_flight.runs_in(self.batch.first_offset, self.batch.last_offset)


@dataclass(slots=True)
class Transitions:
    """The transitions of one request.

    Args:
        window: of the share partition.
        settings: of its group.
        now_ms: the time; a renewed lock is held from now on.
    """

    window: Window
    settings: ShareSettings
    now_ms: int
    begun: list[Begun] = field(default_factory=list[Begun])

    # Acknowledge

    def acknowledge(self, member_id: str, batches: Sequence[Acknowledgement]) -> None:
        """Begin the transitions that a member's acknowledgements ask for.

        Raises:
            AcknowledgementRefused: one is refused; all begun transitions have been taken back.
        """
        try:
            for batch in batches:
                self._acknowledge(member_id, batch)
        except AcknowledgementRefused:
            self.roll_back()
            raise

    def _acknowledge(self, member_id: str, batch: Acknowledgement) -> None:
        self._check(batch)
        if batch.last_offset < self.window.start_offset:
            return
        for in_flight in self._batches_of(batch):
            if in_flight.last_offset >= self.window.start_offset:
                self._acknowledge_in(member_id, batch, in_flight)

    def _check(self, batch: Acknowledgement) -> None:
        count = batch.last_offset - batch.first_offset + 1
        if count < 1 or not batch.types or (len(batch.types) != 1 and len(batch.types) != count):
            raise AcknowledgementRefused(
                ErrorCode.INVALID_REQUEST,
                f"An acknowledgement of the offsets {batch.first_offset} to {batch.last_offset} has {len(batch.types)} "
                "types; it needs one, or one for each offset.",
            )
        known = {int(one) for one in AcknowledgeType}
        if not known.issuperset(batch.types):
            shown = ", ".join(map(str, batch.types))
            raise AcknowledgementRefused(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: [{shown}]")
        if AcknowledgeType.RENEW in batch.types and not self.settings.renews_locks:
            raise AcknowledgementRefused(
                ErrorCode.INVALID_RECORD_STATE,
                "Renewing acquisition locks is disabled for the group (share.renew.acknowledge.enable).",
            )

    def _batches_of(self, batch: Acknowledgement) -> Sequence[InFlightBatch]:
        """Return the batches in flight that an acknowledgement is about."""
        in_flight, start_offset = self.window.in_flight, self.window.start_offset
        floor = in_flight.floor(batch.first_offset)
        if floor is None and batch.first_offset < start_offset:
            floor = in_flight.floor(start_offset)
        if floor is None:
            raise AcknowledgementRefused(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        found = in_flight.between(floor.first_offset, batch.last_offset)
        if not found or found[-1].last_offset < batch.first_offset:
            raise AcknowledgementRefused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if found[-1].last_offset < batch.last_offset:
            raise AcknowledgementRefused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        return found

    def _acknowledge_in(self, member_id: str, batch: Acknowledgement, in_flight: InFlightBatch) -> None:
        start_offset = self.window.start_offset
        if not in_flight.is_split:
            self._check_owner_of_batch(member_id, in_flight)
            is_whole = (
                len(batch.types) == 1
                and in_flight.is_within(batch.first_offset, batch.last_offset)
                and not in_flight.has_inside(start_offset)
            )
            if is_whole:
                self._apply(in_flight, in_flight.first_offset, in_flight.last_offset, batch.type_of(batch.first_offset))
                return
            if in_flight.whole.state is not RecordState.ACQUIRED:
                raise _invalid("The batch cannot be acknowledged. The subset batch is not in the acquired state.")
            in_flight.split(self.window.locks)
        first_offset, last_offset = max(batch.first_offset, start_offset), batch.last_offset
        for first, last, delivery in in_flight.runs_in(first_offset, last_offset):
            _check_record(member_id, delivery)
            for begin, end, what in batch.alike(first, last):
                self._apply(in_flight, begin, end, what)

    def _check_owner_of_batch(self, member_id: str, in_flight: InFlightBatch) -> None:
        whole = in_flight.whole
        if whole.member_id is None:
            raise _invalid("The batch cannot be acknowledged. The batch is not in the acquired state.")
        if whole.member_id != member_id:
            raise _invalid("Member is not the owner of batch record")
        if whole.is_in_transition:
            raise _invalid("The record state is invalid. The acknowledgement of delivery could not be completed.")

    def _apply(self, in_flight: InFlightBatch, first_offset: int, last_offset: int, what: AcknowledgeType) -> None:
        """Apply an acknowledgement to the records of a range, which have one state."""
        if what is not AcknowledgeType.RENEW:
            self._begin(in_flight, first_offset, last_offset, STATE_AFTER[what])
            return
        delivery = self._apart(in_flight, first_offset, last_offset)
        delivery.cancel_lock()
        deadline_ms = self.now_ms + self.settings.record_lock_duration_ms
        delivery.lock = self.window.locks.add(first_offset, last_offset, deadline_ms)

    def _begin(self, in_flight: InFlightBatch, first_offset: int, last_offset: int, state: RecordState) -> None:
        delivery = self._apart(in_flight, first_offset, last_offset)
        found = delivery.begin(state, self.settings.delivery_count_limit)
        self.begun.append(Begun(in_flight, StateBatch(first_offset, last_offset, found, delivery.delivery_count)))
        if found.is_terminal:
            self.window.complete_count += self.window.count_inside(first_offset, last_offset)

    def _apart(self, in_flight: InFlightBatch, first_offset: int, last_offset: int) -> Delivery:
        if not in_flight.is_split:
            return in_flight.whole
        return in_flight.apart(first_offset, last_offset, self.window.locks)

    # Release

    def release(self, member_id: str) -> None:
        """Begin to release all records that a member has acquired; those before the start offset are archived."""
        start_offset = self.window.start_offset
        for in_flight in self.window.in_flight:
            if in_flight.has_inside(start_offset) and (in_flight.is_split or in_flight.whole.member_id == member_id):
                in_flight.divide_at(start_offset, self.window.locks)
            for first_offset, last_offset, delivery in in_flight.runs():
                if delivery.member_id == member_id and delivery.may_become(RecordState.AVAILABLE):
                    state = RecordState.ARCHIVED if last_offset < start_offset else RecordState.AVAILABLE
                    self._begin(in_flight, first_offset, last_offset, state)

    # The outcome

    @property
    def batches(self) -> tuple[StateBatch, ...]:
        """The batches to write."""
        return tuple(one.batch for one in self.begun)

    def complete(self) -> bool:
        """End the transitions, which were written, and return whether the start offset may have moved."""
        for one in self.begun:
            for _, _, delivery in one.runs():
                delivery.complete()
                self._note_available(delivery)
        return self.window.advance_start()

    def roll_back(self) -> None:
        """Take the transitions back, which were refused or could not be written.

        A record whose lock has timed out meanwhile is archived if the start offset has passed it; Kafka makes it
        available (InFlightState.completeStateTransition), and so delivers it from below the start.
        """
        for one in self.begun:
            for first_offset, last_offset, delivery in one.runs():
                was_complete = delivery.state.is_terminal
                delivery.roll_back(self.settings.delivery_count_limit)
                self._note_available(delivery)
                change = delivery.state.is_terminal - was_complete
                self.window.complete_count += change * self.window.count_inside(first_offset, last_offset)
            self.window.archive_before_start(one.batch.first_offset, one.batch.last_offset)

    def _note_available(self, delivery: Delivery) -> None:
        if delivery.state is RecordState.AVAILABLE:
            self.window.looks_for_available = True


def _check_record(member_id: str, delivery: Delivery) -> None:
    if delivery.state is not RecordState.ACQUIRED:
        raise _invalid("The offset cannot be acknowledged. The offset is not acquired.")
    if delivery.member_id != member_id:
        raise _invalid("Member is not the owner of offset")


def _invalid(message: str) -> AcknowledgementRefused:
    return AcknowledgementRefused(ErrorCode.INVALID_RECORD_STATE, message)
