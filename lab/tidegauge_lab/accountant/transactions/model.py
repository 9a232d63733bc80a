"""A history of transactions as plain values: what clients asked for, what came back, what they read.

Times are microseconds since 1970, on one clock for all clients; ends of ranges of offsets are exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from tidegauge.lazy_dataclasses import dataclass

NEVER_US = -1
NO_PARTITION = -1
"""The partition of a record whose client chooses it, until the record is acknowledged."""


class Outcome(Enum):
    """The known result of an operation; ``INFO``: unknown, since no response came or its client was killed."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Seen(NamedTuple):
    """A record that a poll returned."""

    place: Place
    offset: int
    value: str


_NOWHERE = Place("", 0)


@dataclass(slots=True)
class Operation:
    """The common part of all operations.

    Attributes:
        process: one run of one client.
        number: its place among the operations of the process.
        invoked_us: just before it began.
        completed_us: just after its outcome; -1 without one.
    """

    process: str
    number: int
    invoked_us: int
    outcome: Outcome = Outcome.INFO
    completed_us: int = NEVER_US

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {self.number} of {self.process}"


@dataclass(slots=True)
class Send(Operation):
    """One record; ``offset`` is taken from the acknowledgement, None if unknown."""

    transaction: str | None = None
    place: Place = _NOWHERE
    value: str = ""
    offset: int | None = None


@dataclass(slots=True)
class SendOffsets(Operation):
    """Positions of a group that are committed, with a transaction or without."""

    transaction: str | None = None
    group: str = ""
    offsets: Mapping[Place, int] = field(default_factory=dict[Place, int])


@dataclass(slots=True)
class End(Operation):
    """A commit or an abort."""

    transaction: str = ""
    is_commit: bool = True


@dataclass(slots=True)
class Assign(Operation):
    """A consumer was given partitions, or has sought: its positions may be anywhere."""


@dataclass(slots=True)
class Poll(Operation):
    """The records of one poll of a consumer.

    Attributes:
        transaction: in which the consumer's process was; None: in none.
        is_committed: whether the consumer's isolation level is read_committed.
        records: in the order in which they were given.
        begins: of a final poll: its first offset in each partition; records below have been deleted.
        ends: of a final poll, which reads everything after all faults have ended: its exclusive end offsets.
    """

    transaction: str | None = None
    is_committed: bool = True
    records: Sequence[Seen] = ()
    begins: Mapping[Place, int] = field(default_factory=dict[Place, int])
    ends: Mapping[Place, int] = field(default_factory=dict[Place, int])


@dataclass(slots=True)
class ReadOffsets(Operation):
    """The committed positions of a group, as they were read."""

    group: str = ""
    offsets: Mapping[Place, int] = field(default_factory=dict[Place, int])


class Fate(Enum):
    """The fate of a transaction, as far as its clients know."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    BOTH = "both"


@dataclass(slots=True)
class Transactions:
    """A history: all operations, each kind in the order of its invocations."""

    sends: list[Send] = field(default_factory=list[Send])
    send_offsets: list[SendOffsets] = field(default_factory=list[SendOffsets])
    ends: list[End] = field(default_factory=list[End])
    polls: list[Poll] = field(default_factory=list[Poll])
    assigns: list[Assign] = field(default_factory=list[Assign])
    read_offsets: list[ReadOffsets] = field(default_factory=list[ReadOffsets])

    @property
    def operations(self) -> int:
        """How many operations there are."""
        kinds = (self.sends, self.send_offsets, self.ends, self.polls, self.assigns, self.read_offsets)
        return sum(len(kind) for kind in kinds)


def fate_of(ends: Sequence[End]) -> Fate:
    """Return the fate of a transaction by the requests to end it.

    If no client asked for a commit the transaction is aborted, by its timeout at last. A commit that was refused by
    a definite error had no effect; one without a response may have had one.
    """
    is_committed = any(one.is_commit and one.outcome is Outcome.OK for one in ends)
    is_aborted = any(not one.is_commit and one.outcome is Outcome.OK for one in ends)
    if is_committed:
        return Fate.BOTH if is_aborted else Fate.COMMITTED
    if is_aborted or all(not one.is_commit or one.outcome is Outcome.FAIL for one in ends):
        return Fate.ABORTED
    return Fate.UNKNOWN
