"""Consumer groups of KIP-848 as plain values: requests to a group coordinator and their results.

Times are ms; topics are known by their ids. The wires translate their messages to these values and back.
Source: ConsumerGroupHeartbeat and ConsumerGroupDescribe of Kafka 4.3 (KIP-848, KIP-1082).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass

JOINING_EPOCH = 0
"""Member epoch with which a member joins, for the first time or after it was fenced."""
LEAVING_EPOCH = -1
"""Member epoch with which a member leaves."""
STATIC_LEAVING_EPOCH = -2
"""Member epoch with which a static member leaves for a while: its partitions stay reserved."""
CONSUMER = "consumer"
"""The type of these groups, and the protocol type of consumers (Group.GroupType)."""
Assignment = tuple[tuple[bytes, tuple[int, ...]], ...]
"""Partitions by topic id."""
Permits = Callable[[Iterable[str]], set[str]]
"""Returns which of some topics the sender of a request may describe."""


class ConsumerGroupState(Enum):
    """The states of a consumer group, by Kafka's names (ConsumerGroup.ConsumerGroupState)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """A member's heartbeat (API 68), by which it joins, leaves, changes its subscription and reconciles.

    Attributes:
        member_epoch: 0 joins, -1 leaves, -2 is a static member's leave for a while.
        rebalance_timeout_ms: how long the member may take to give partitions up; -1: unchanged.
        topic_names: None: unchanged.
        topic_regex: RE2 syntax, matches whole names; None: unchanged, empty: no expression.
        server_assignor: name of the member's preferred assignor; None: unchanged.
        owned: partitions that the member owns; None: unchanged.
        needs_member_id: v1 and later: the client makes its member id.
        permits: returns which topics the sender may describe; None: all.
    """

    group_id: str | None
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    needs_member_id: bool = True
    permits: Permits | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatResult:
    """The response to a ConsumerGroupHeartbeat.

    Attributes:
        assignment: what the member may own now; None: unchanged.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup:
    """A request to describe one group (API 69; a request may name several: one value for each)."""

    group_id: str | None


class NamedPartitions(NamedTuple):
    """Partitions of a topic."""

    topic_id: bytes
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """A member in a description.

    Attributes:
        assignment: what it may own now, and what it has yet to give up.
        target: what it shall own.
        is_classic: whether it uses the classic protocol (memberType 0).
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str
    assignment: tuple[NamedPartitions, ...]
    target: tuple[NamedPartitions, ...]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroupResult:
    """A consumer group's description: its committed state."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()
