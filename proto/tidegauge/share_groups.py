"""Share groups of KIP-932 as plain values: requests to the group and the share coordinator, and their results.

Offsets in ranges are inclusive at both ends, as in Kafka's protocol; topics are known by their ids. Times are ms.
Source: the APIs 76, 77, 83 to 87, 91 and 92 of Kafka 4.3.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from tidegauge.consumer_groups import Assignment, NamedPartitions
from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass

SHARE_STATE_TOPIC = "__share_group_state"
NO_START_OFFSET = -1
"""Start offset of a share partition that was initialized and never written: the group's reset decides."""
NO_EPOCH = -1
"""Leader or state epoch of a request that skips the check of it."""
NO_COUNT = -1
"""Number of completed records if it is unknown."""


class SharePartitionKey(NamedTuple):
    """A share partition: a partition as one share group consumes it."""

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """Return the key by which a client finds its coordinator (SharePartitionKey.asCoordinatorKey)."""
        topic_id = base64.urlsafe_b64encode(self.topic_id).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Records that have the same state.

    Attributes:
        state: the number of a RecordState: 0 available, 2 acknowledged, 4 archived.
        delivery_count: how often they were delivered.
    """

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class InitializeShareState:
    """A request of the group coordinator to begin a share partition, or to begin it again (API 83)."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int = NO_START_OFFSET


@dataclass(frozen=True, slots=True)
class ReadShareState:
    """A request of a partition's leader for the state; its leader epoch fences the leaders before it (API 84)."""

    key: SharePartitionKey
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class WriteShareState:
    """A request of a partition's leader to write states of records (API 85).

    Attributes:
        start_offset: -1: unchanged.
        complete_count: records in terminal states at or after the start offset.
    """

    key: SharePartitionKey
    state_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    start_offset: int = NO_START_OFFSET
    complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteShareState:
    """A request of the group coordinator to forget a share partition (API 86)."""

    key: SharePartitionKey


@dataclass(frozen=True, slots=True)
class ReadShareSummary:
    """A request of the group coordinator for the state without the records' own (API 87)."""

    key: SharePartitionKey
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class ShareStateResult:
    """The result of a request to the share coordinator; the responses of the five APIs have parts of it."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()


ShareStateRequest = InitializeShareState | ReadShareState | WriteShareState | DeleteShareState | ReadShareSummary


SHARE = "share"
"""The type of these groups, and the protocol type in listings (Group.GroupType)."""


class ShareGroupState(Enum):
    """The states of a share group, by Kafka's names (ShareGroup.ShareGroupState)."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeat:
    """A member's heartbeat (API 76), by which it joins, leaves and changes its subscription.

    Attributes:
        member_epoch: 0 joins, -1 leaves.
        topic_names: None: unchanged.
    """

    group_id: str | None
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeatResult:
    """The response to a ShareGroupHeartbeat.

    Attributes:
        assignment: the partitions that the member is to fetch; None: unchanged.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True)
class DescribeShareGroup:
    """A request to describe one group (API 77; a request may name several: one value for each)."""

    group_id: str | None


@dataclass(frozen=True, slots=True)
class DescribedShareMember:
    """A member in a description."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: tuple[NamedPartitions, ...]


@dataclass(frozen=True, slots=True)
class DescribeShareGroupResult:
    """A group as ShareGroupDescribe shows it."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ShareGroupState.DEAD.value
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListSharePartitions:
    """A request for the share partitions of a group that are initialized; a group that does not exist has none."""

    group_id: str | None


@dataclass(frozen=True, slots=True)
class ListSharePartitionsResult:
    """The result of a ``ListSharePartitions``, by topic id."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[bytes, frozenset[int]] = field(default_factory=dict[bytes, frozenset[int]])


@dataclass(frozen=True, slots=True)
class AlterShareOffsets:
    """A request to begin partitions of a group without members at other offsets (API 91).

    Attributes:
        offsets: start offsets by topic name and partition; any number is taken.
    """

    group_id: str | None
    offsets: Mapping[str, Mapping[int, int]]


class AlteredOffset(NamedTuple):
    """The outcome for one partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterShareOffsetsResult:
    """The result of an ``AlterShareOffsets``, by topic name and partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partitions: Mapping[str, Mapping[int, AlteredOffset]] = field(
        default_factory=dict[str, Mapping[int, AlteredOffset]]
    )


@dataclass(frozen=True, slots=True)
class DeleteShareOffsets:
    """A request to forget the states of whole topics of a group without members (API 92)."""

    group_id: str | None
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeleteShareOffsetsResult:
    """The result of a ``DeleteShareOffsets``, by topic name."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topics: Mapping[str, AlteredOffset] = field(default_factory=dict[str, AlteredOffset])
