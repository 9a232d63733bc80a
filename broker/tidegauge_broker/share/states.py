"""The states of a record in a share partition, and how a delivery moves it from one to the next.

A delivery state belongs to one record, or to all records of a batch while they have the same. A transition that must be
persisted first is begun, and later completed or rolled back; until then no other transition is accepted.
Source: InFlightState and RecordState of org.apache.kafka.server.share.fetch; KIP-932, "In-flight records".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class RecordState(IntEnum):
    """The states, by their numbers in requests and in the records of the share coordinator.

    3 is reserved by Kafka 4.3 for records on their way to a dead letter queue (KIP-1191), which it does not have.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record is never delivered again."""
        return self in {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}


TRANSITIONS = frozenset(
    {
        (RecordState.AVAILABLE, RecordState.ACQUIRED),
        (RecordState.ACQUIRED, RecordState.AVAILABLE),
        (RecordState.ACQUIRED, RecordState.ACKNOWLEDGED),
        (RecordState.ACQUIRED, RecordState.ARCHIVED),
    }
)
"""The transitions of a delivered record; a record may also be archived in place, see ``Delivery.archive``."""


class AcknowledgeType(IntEnum):
    """A member's verdict on a record that it has acquired.

    GAP stands for an offset that has no record: a control record, or one that compaction has removed.
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


STATE_AFTER = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""The state that an acknowledgement brings about; a renewal changes none (KIP-1222)."""


class Lock:
    """The acquisition lock of a delivery.

    Attributes:
        deadline_ms: when it times out.
        has_expired: whether it has timed out; the delivery may be in a transition that keeps it from being released.
        is_cancelled: whether its deadline no longer counts.
    """

    __slots__ = ("deadline_ms", "first_offset", "has_expired", "is_cancelled", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, deadline_ms: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.deadline_ms = deadline_ms
        self.has_expired = False
        self.is_cancelled = False


class _Before:
    """The state before a transition that is not completed yet."""

    __slots__ = ("delivery_count", "member_id", "state")

    def __init__(self, state: RecordState, delivery_count: int, member_id: str | None) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id


@dataclass(slots=True, eq=False)
class Delivery:
    """The state of a record, or of a batch of records that have the same.

    Attributes:
        delivery_count: how often the record was acquired.
        member_id: the member that has acquired it; None: no member has.
        lock: of the acquisition.
    """

    state: RecordState
    delivery_count: int
    member_id: str | None = None
    lock: Lock | None = None
    _before: _Before | None = None
    _is_archived_for_good: bool = False

    @property
    def is_in_transition(self) -> bool:
        """Whether a transition waits for its write."""
        return self._before is not None

    @property
    def is_archived_for_good(self) -> bool:
        """Whether the record is archived because its log, or its transaction, has no such record."""
        return self._is_archived_for_good

    @property
    def holder_id(self) -> str | None:
        """The member that has the record, or had it before a transition that waits for its write; None: none."""
        return self.member_id if self._before is None else self._before.member_id

    @property
    def is_acquirable(self) -> bool:
        """Whether a member may acquire the record now."""
        return self.state is RecordState.AVAILABLE and self._before is None

    def may_become(self, state: RecordState) -> bool:
        """Return whether a transition to a state is accepted now."""
        return self._before is None and (self.state, state) in TRANSITIONS

    def acquire(self, member_id: str) -> None:
        """Give an available record to a member: this is one more delivery."""
        assert self.may_become(RecordState.ACQUIRED), "only available records are acquired"
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id

    def give_back(self, state: RecordState, delivery_limit: int) -> RecordState:
        """End a delivery at once, without a transition, and return the state that the record has now.

        Args:
            state: AVAILABLE becomes ARCHIVED if the record was delivered as often as the limit allows.
            delivery_limit: the maximum number of deliveries.
        """
        if state is RecordState.AVAILABLE and self.delivery_count >= delivery_limit:
            state = RecordState.ARCHIVED
        assert self.may_become(state), "only acquired records are given back"
        self.state = state
        self.member_id = None
        return state

    def begin(self, state: RecordState, delivery_limit: int) -> RecordState:
        """Begin a transition, as ``give_back``, that ``complete`` or ``roll_back`` ends."""
        before = _Before(self.state, self.delivery_count, self.member_id)
        found = self.give_back(state, delivery_limit)
        self._before = before
        return found

    def complete(self) -> None:
        """End a transition whose write succeeded."""
        self._before = None
        self.cancel_lock()

    def roll_back(self, delivery_limit: int) -> None:
        """Take a transition back: to the member that had the record or, if its lock has timed out, to no member.

        A record that was archived meanwhile, because the log start has passed it, stays archived.

        Args:
            delivery_limit: the maximum number of deliveries; a record that is not given back to a member is archived if
                it was delivered as often.
        """
        before = self._before
        assert before is not None, "a transition that has not begun cannot be taken back"
        self._before = None
        if self._is_archived_for_good:
            self.cancel_lock()
            return
        self.delivery_count = before.delivery_count
        if self.lock is not None and self.lock.has_expired:
            is_exhausted = self.delivery_count >= delivery_limit
            self.state = RecordState.ARCHIVED if is_exhausted else RecordState.AVAILABLE
            self.member_id = None
            self.cancel_lock()
        else:
            self.state, self.member_id = before.state, before.member_id

    def archive(self) -> None:
        """Archive the record in any state and transition, for good: its log, or its transaction, has no such record."""
        self._is_archived_for_good = True
        self.state = RecordState.ARCHIVED
        self.member_id = None
        self.cancel_lock()

    def copied(self, lock: Lock | None) -> Delivery:
        """Return the same state for other records, with a lock of their own."""
        return Delivery(self.state, self.delivery_count, self.member_id, lock, self._before, self._is_archived_for_good)

    def cancel_lock(self) -> None:
        """End the acquisition lock; without one nothing happens."""
        if self.lock is not None:
            self.lock.is_cancelled = True
            self.lock = None
