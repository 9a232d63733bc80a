"""Consumer groups as plain values: the requests to a group coordinator, their results, and a group's partition.

The wires translate their messages to these values and back; the pure coordinator speaks nothing else. Times are ms. A
field that a version of Kafka's request lacks has the value that Kafka's broker gives it (GroupCoordinatorAdapter).
Source: the group APIs of Kafka 3.9 (GroupCoordinator, GroupCoordinatorAdapter, KafkaApis); KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from tidegauge.consumer_groups import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupState,
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
)
from tidegauge.errors import ErrorCode
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import (
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    DescribeShareGroup,
    DescribeShareGroupResult,
    ListSharePartitions,
    ListSharePartitionsResult,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
)
from tidegauge.transactions import SupportedOperation

OFFSETS_TOPIC = "__consumer_offsets"
NO_GENERATION = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP_MS = -1
CLASSIC = "classic"
"""The type of a group in which a member assigns partitions, or that has offsets only (Group.GroupType)."""
_HASH_BITS = 0xFFFFFFFF
_INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, a signed number of 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _HASH_BITS
    return value - 2**32 if value >= 2**31 else value


def partition_of(key: str, partitions: int) -> int:
    """Return an internal topic's partition for a group or a transactional id.

    Args:
        key: the group id or transactional id.
        partitions: the number of partitions of the topic.

    Returns:
        The absolute value of Java's hash modulo ``partitions``; Integer.MIN_VALUE counts as 0 (Utils.abs).
    """
    value = java_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % partitions


class GroupState(Enum):
    """The states of a classic group, by Kafka's names (GroupMetadata)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


GROUP_STATES = tuple(dict.fromkeys(one.value for one in (*GroupState, *ConsumerGroupState)))
"""Names of the states of groups of either protocol."""


class Protocol(NamedTuple):
    """One assignment strategy that a member supports, with the member's metadata (of a consumer: its subscription)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A request to join a group (API 11).

    Attributes:
        rebalance_timeout_ms: of v0, which lacks it, the session timeout.
        requires_known_member_id: v4 and later, a first join without member id gets MEMBER_ID_REQUIRED (KIP-394).
        supports_skipping_assignment: v9 and later (KIP-814).
        client_host: as Java prints an InetAddress, "/127.0.0.1".
    """

    group_id: str | None
    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    requires_known_member_id: bool = True
    supports_skipping_assignment: bool = True


class JoinedMember(NamedTuple):
    """A member as its leader sees it, with the metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResult:
    """The response to a JoinGroup. ``members`` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """A request for the assignment of a generation (API 14); the leader's carries all members' assignments.

    v5 and later must name ``protocol_type`` and ``protocol_name``: the wire responds with INCONSISTENT_GROUP_PROTOCOL
    otherwise, before the coordinator sees the request (KafkaApis.handleSyncGroupRequest).
    """

    group_id: str | None
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupResult:
    """The response to a SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member's heartbeat (API 12)."""

    group_id: str | None
    generation: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The response to a Heartbeat."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One member of a LeaveGroup; a static one may be named by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """A request that removes members (API 13); v0 to v2 carry exactly one, whose error becomes the response's."""

    group_id: str | None
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    """The outcome of one member of a LeaveGroup."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveGroupResult:
    """The response to a LeaveGroup; ``members`` is empty where ``error`` is of the whole request."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition's offset in an OffsetCommit.

    Attributes:
        commit_timestamp_ms: the client's, in v1 only.
        topic_id: of the topic; zero in a transaction, whose requests name topics (KafkaApis.handleOffsetCommitRequest).
    """

    topic_partition: TopicPartition
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None
    commit_timestamp_ms: int = NO_TIMESTAMP_MS
    topic_id: bytes = NIL_UUID


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Offsets to commit (API 8), of partitions that exist: others got UNKNOWN_TOPIC_OR_PARTITION from the wire.

    If no partition is left, the coordinator is not asked (KafkaApis.handleOffsetCommitRequest).

    Attributes:
        generation: of a member of a consumer group its member epoch.
        retention_time_ms: of v2 to v4; -1: offsets.retention.minutes.
        knows_member_epochs: v9 and later: members of consumer groups commit by it alone (KIP-848).
    """

    group_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    knows_member_epochs: bool = False


@dataclass(frozen=True, slots=True)
class OffsetCommitResult:
    """The response to an OffsetCommit: one error for each partition of the request."""

    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict[TopicPartition, ErrorCode])


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """Offsets that a producer commits within its transaction (API 28), of partitions that exist.

    They are pending until the transaction's marker is written to the group's partition of __consumer_offsets.

    Attributes:
        generation: with ``member_id`` and ``group_instance_id`` of v3 and later: fences members of older generations
            (KIP-447); versions before have the defaults, with which no member is fenced.
        operation: what the version of the request supports.
        is_load_unavailable: v0 and v1: while the group's partition loads the error is COORDINATOR_NOT_AVAILABLE.
    """

    transactional_id: str
    group_id: str | None
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    operation: SupportedOperation = SupportedOperation.GENERIC_ERROR_SUPPORTED
    is_load_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResult:
    """The response to a TxnOffsetCommit: one error for each partition of the request."""

    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict[TopicPartition, ErrorCode])


@dataclass(frozen=True, slots=True)
class TransactionCompletedResult:
    """The transactional offsets of a producer were moved or dropped: WriteTxnMarkers may be responded to."""


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """A request for committed offsets of one group (API 9; v8 and later ask for several: one value for each).

    Attributes:
        partitions: None: all that the group has.
        require_stable: respond with UNSTABLE_OFFSET_COMMIT where a commit is in flight (v7 and later, KIP-447).
        member_id: of v9 and later, with ``member_epoch``: the member of a consumer group that asks; None: no member.
        topic_ids: by name, if the client named topics by ids (v10).
    """

    group_id: str | None
    partitions: tuple[TopicPartition, ...] | None = None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1
    topic_ids: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


class FetchedOffset(NamedTuple):
    """The committed offset of a partition; offset -1 if there is none."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetFetchResult:
    """The response to an OffsetFetch; ``error`` is of the group, and leaves ``offsets`` empty.

    Versions 0 and 1, which have no error of the group, repeat it for each partition of the request.
    """

    error: ErrorCode = ErrorCode.NONE
    offsets: Mapping[TopicPartition, FetchedOffset] = field(default_factory=dict[TopicPartition, FetchedOffset])


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    """A request that deletes committed offsets (API 47, KIP-496), of partitions that exist."""

    group_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResult:
    """The response to an OffsetDelete; ``error`` is of the group, and leaves ``partitions`` empty."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict[TopicPartition, ErrorCode])


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """A request to describe one group (API 15; a request may name several: one value for each)."""

    group_id: str | None


class DescribedMember(NamedTuple):
    """A member in a description; metadata and assignment are empty unless the group is Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribeGroupResult:
    """A group's description; an unknown group has no error and the state Dead.

    Attributes:
        is_of_another_type: whether there is a group of the name that the consumer or the share protocol has made.
    """

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
    is_of_another_type: bool = False


@dataclass(frozen=True, slots=True)
class ListGroups:
    """A request for the groups that this broker coordinates (API 16). Empty filters take all."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    """One group of a list."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC


@dataclass(frozen=True, slots=True)
class ListGroupsResult:
    """The response to ListGroups: while a partition loads, an error beside the groups of the others."""

    error: ErrorCode = ErrorCode.NONE
    groups: Sequence[ListedGroup] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A request to delete one group (API 42; a request may name several: one value for each)."""

    group_id: str | None


@dataclass(frozen=True, slots=True)
class DeleteGroupResult:
    """The response to a DeleteGroup."""

    error: ErrorCode = ErrorCode.NONE


GroupRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | ListGroups
    | DeleteGroup
    | ConsumerGroupHeartbeat
    | DescribeConsumerGroup
    | ShareGroupHeartbeat
    | DescribeShareGroup
    | ListSharePartitions
    | AlterShareOffsets
    | DeleteShareOffsets
)
GroupResult = (
    JoinGroupResult
    | SyncGroupResult
    | HeartbeatResult
    | LeaveGroupResult
    | OffsetCommitResult
    | TxnOffsetCommitResult
    | TransactionCompletedResult
    | OffsetFetchResult
    | OffsetDeleteResult
    | DescribeGroupResult
    | ListGroupsResult
    | DeleteGroupResult
    | ConsumerGroupHeartbeatResult
    | DescribeConsumerGroupResult
    | ShareGroupHeartbeatResult
    | DescribeShareGroupResult
    | ListSharePartitionsResult
    | AlterShareOffsetsResult
    | DeleteShareOffsetsResult
)
