"""Views of a coordinator's groups for the lab, the metrics and ``explain``; clients see DescribeGroups only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from tidegauge.consumer_groups import ConsumerGroupState
from tidegauge.groups import GroupState
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TransactionState


class CommittedOffsetView(NamedTuple):
    """A committed offset as the coordinator has it; ``commit_timestamp_ms`` is where its retention may start."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a group.

    Attributes:
        metadata: of the chosen protocol; of a consumer its subscription.
        parked: "JoinGroup" or "SyncGroup" where a request of the member waits, else "".
        session_deadline_ms: when the member is removed unless it is heard of; None while none is set.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes
    assignment: bytes
    parked: str
    session_deadline_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """The full truth about a group, in every state.

    Attributes:
        partition: of __consumer_offsets.
        state_since_ms: the time of the last transition; -1 unknown.
        reason: why the last rebalance began, in Kafka's words; "" if there was none since the load.
        pending_members: member ids that were given with MEMBER_ID_REQUIRED and have not joined yet.
        phase_deadline_ms: when the join or sync phase ends at the latest; None outside both.
        in_initial_delay: whether that phase is the initial delay, which nothing ends early.
        pending_offsets: partitions with a commit that is not committed yet.
    """

    group_id: str
    partition: int
    state: GroupState
    state_since_ms: int
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[MemberView, ...]
    pending_members: tuple[str, ...]
    phase_deadline_ms: int | None
    reason: str
    offsets: Mapping[TopicPartition, CommittedOffsetView]
    pending_offsets: tuple[TopicPartition, ...]
    in_initial_delay: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerMemberView:
    """A member of a consumer group.

    Attributes:
        epoch: the member's; -2: it is static, and has left for a while.
        state: STABLE, UNREVOKED_PARTITIONS or UNRELEASED_PARTITIONS (Kafka's MemberState).
        is_classic: whether it uses the classic protocol.
        assigned: partitions that it may own.
        revoking: partitions that it has yet to give up.
        awaited: partitions of its target that other members have, each with the member that has it.
        target: partitions of its target assignment.
        session_deadline_ms: when it is removed unless it is heard of; None while none is set.
        revocation_deadline_ms: when it is removed unless it gives up ``revoking``; it has ``rebalance_timeout_ms``
            altogether. None: it has nothing to give up.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    epoch: int
    state: str
    is_classic: bool
    assigned: tuple[TopicPartition, ...]
    revoking: tuple[TopicPartition, ...]
    awaited: tuple[tuple[TopicPartition, str], ...]
    target: tuple[TopicPartition, ...]
    rebalance_timeout_ms: int
    session_deadline_ms: int | None
    revocation_deadline_ms: int | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    """The full truth about a consumer group (KIP-848), as it is committed.

    Attributes:
        partition: of __consumer_offsets.
        state_since_ms: the time of the last transition; -1 unknown.
        epoch: the group's.
        assignment_epoch: of the target assignment.
        assignor: by which the next target is computed.
    """

    group_id: str
    partition: int
    state: ConsumerGroupState
    state_since_ms: int
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberView, ...]
    offsets: Mapping[TopicPartition, CommittedOffsetView]


@dataclass(slots=True)
class Counters:
    """Totals since the broker started, behind the rates of Kafka's group-coordinator-metrics."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    consumer_group_rebalances: int = 0
    share_group_rebalances: int = 0


@dataclass(frozen=True, slots=True)
class Gauges:
    """The current gauges, as Kafka's GroupMetadataManager counts.

    Attributes:
        groups: how many classic groups by state.
        offsets: committed offsets of all groups.
        consumer_groups: how many consumer groups by state; empty: they are not served.
    """

    groups: Mapping[GroupState, int] = field(default_factory=dict[GroupState, int])
    offsets: int = 0
    consumer_groups: Mapping[ConsumerGroupState, int] = field(default_factory=dict[ConsumerGroupState, int])


@dataclass(frozen=True, slots=True)
class TransactionView:
    """The full truth about a transactional id.

    Attributes:
        partition: of __transaction_state.
        coordinator_epoch: leader epoch of that partition when this broker took over.
        pending_state: the state whose record is being written; of a decided transaction the one that follows when all
            its markers are written. While it is set most requests get CONCURRENT_TRANSACTIONS.
        partitions: of the transaction; once it is decided those whose marker is not written yet.
        start_time_ms: when the first partition was added; -1 before any transaction.
        last_producer_epoch: the epoch before the last InitProducerId of the same producer (KIP-360); not persisted.
        has_failed_epoch_fence: the epoch was raised, but the record of it could not be written (KAFKA-9666).
        is_given_up: a marker was refused because of a newer coordinator or producer epoch: no more markers are sent.
        transactions_version: that the producer of the last transaction speaks, 1 or 2 (KIP-890); 0: the id's producer
            has begun none yet.
    """

    transactional_id: str
    partition: int
    coordinator_epoch: int
    state: TransactionState
    pending_state: TransactionState | None
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    last_producer_epoch: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    start_time_ms: int
    last_update_ms: int
    has_failed_epoch_fence: bool
    is_given_up: bool
    transactions_version: int


@dataclass(frozen=True, slots=True)
class TransactionGauges:
    """The current gauges; the last two are Kafka's metrics of TransactionMarkerChannelManager.

    Attributes:
        transactions: how many transactional ids by state.
        unknown_destination_queue_size: markers whose partition has no leader that is alive.
        log_append_retry_queue_size: transactions whose last record could not be written yet.
    """

    transactions: Mapping[TransactionState, int] = field(default_factory=dict[TransactionState, int])
    unknown_destination_queue_size: int = 0
    log_append_retry_queue_size: int = 0
