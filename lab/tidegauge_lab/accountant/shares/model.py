"""A history of share groups as plain values: fetches of members, their acknowledgements, and offsets set by admins.

Times are microseconds since 1970, on one clock for all clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.accountant.transactions.model import NEVER_US, Operation, Outcome, Place, Send


class Says(Enum):
    """A member's acknowledgement of a record; the value is the word in the history."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"

    @property
    def is_final(self) -> bool:
        """Whether the record is never delivered again."""
        return self in {Says.ACCEPT, Says.REJECT}


class Given(NamedTuple):
    """A record that a fetch gave; the count is Kafka's: with this delivery. None: the client does not show it."""

    place: Place
    offset: int
    value: str
    delivery_count: int | None


class Said(NamedTuple):
    """An acknowledgement of a record."""

    place: Place
    offset: int
    says: Says


@dataclass(slots=True)
class Acquire(Operation):
    """A fetch of a member.

    Attributes:
        limit: share.delivery.count.limit of the group; None: not known.
    """

    group: str = ""
    limit: int | None = None
    records: Sequence[Given] = ()


@dataclass(slots=True)
class Acknowledge(Operation):
    """A member's acknowledgements of records; all share its outcome."""

    group: str = ""
    records: Sequence[Said] = ()


@dataclass(slots=True)
class AlterOffsets(Operation):
    """Start offsets that an admin set."""

    group: str = ""
    offsets: Mapping[Place, int] = field(default_factory=dict[Place, int])


@dataclass(slots=True)
class ReadStarts(Operation):
    """Start offsets of a group, as a coordinator gave them."""

    group: str = ""
    offsets: Mapping[Place, int] = field(default_factory=dict[Place, int])


@dataclass(slots=True)
class ShareHistory:
    """All operations, each kind in the order of invocation."""

    sends: list[Send] = field(default_factory=list[Send])
    acquires: list[Acquire] = field(default_factory=list[Acquire])
    acknowledges: list[Acknowledge] = field(default_factory=list[Acknowledge])
    alterations: list[AlterOffsets] = field(default_factory=list[AlterOffsets])
    starts: list[ReadStarts] = field(default_factory=list[ReadStarts])

    @property
    def operations(self) -> int:
        """How many there are."""
        kinds: tuple[Sequence[Operation], ...] = (
            self.sends,
            self.acquires,
            self.acknowledges,
            self.alterations,
            self.starts,
        )
        return sum(map(len, kinds))


def may_lie_between(alteration: AlterOffsets, after_us: int, before_us: int) -> bool:
    """Return whether an alteration may have come into force between two times."""
    if alteration.outcome is Outcome.FAIL:
        return False
    ends_us = alteration.completed_us if alteration.outcome is Outcome.OK else NEVER_US
    return alteration.invoked_us < before_us and (ends_us == NEVER_US or ends_us > after_us)
