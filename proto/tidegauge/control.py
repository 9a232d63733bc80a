"""The messages between controller and brokers as plain values.

The pure cores on both sides speak these; ``control.proto`` is their form on the wire. A leader of ``NO_LEADER``
means none. ISR lists keep stored order.
Source: LeaderAndIsr, UpdateMetadata, StopReplica and AlterPartition of Kafka 3.9 (ControllerChannelManager,
AlterPartitionManager).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.metadata_update import Endpoint, MetadataUpdate, ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import NO_LEADER, PartitionState

__all__ = [
    "NO_LEADER",
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "ControlHeader",
    "Endpoint",
    "IsrProposal",
    "IsrVerdict",
    "LeaderAndIsrPartition",
    "LeaderAndIsrRequest",
    "PartitionsResponse",
    "StopReplicaPartition",
    "StopReplicaRequest",
    "UpdateMetadataRequest",
]


@dataclass(frozen=True, slots=True)
class ControlHeader:
    """The sender of a control request, and the receiver's broker epoch as the sender knows it."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class LeaderAndIsrPartition:
    """One partition of a LeaderAndIsr request."""

    state: PartitionState
    is_new: bool


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest:
    """A request that makes replicas leaders or followers.

    Attributes:
        understands_ineligible: the sender handles INELIGIBLE_REPLICA in the response as a restart that it overlooked.
            Kafka's controller does not.
    """

    header: ControlHeader
    partitions: Sequence[LeaderAndIsrPartition]
    live_leaders: Sequence[Endpoint]
    understands_ineligible: bool = True


@dataclass(frozen=True, slots=True)
class PartitionsResponse:
    """The response to LeaderAndIsr and StopReplica: an error of the whole request, or one for each partition."""

    error: ErrorCode = ErrorCode.NONE
    partitions: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest:
    """A request that updates a broker's metadata cache: all live brokers, and the partitions that changed.

    Attributes:
        startup_complete: all requests that follow from the receiver's registration, or the sender's election, were sent
            before this one.
    """

    header: ControlHeader
    partitions: Sequence[ReportedPartition]
    live_brokers: Sequence[Endpoint]
    startup_complete: bool = False

    @property
    def update(self) -> MetadataUpdate:
        """Return the request's content in the form that both modes share."""
        header = self.header
        return MetadataUpdate(header.controller_id, header.controller_epoch, self.live_brokers, self.partitions)


@dataclass(frozen=True, slots=True)
class StopReplicaPartition:
    """One replica to stop; without a leader epoch it is not checked."""

    topic_partition: TopicPartition
    leader_epoch: int | None
    delete: bool


@dataclass(frozen=True, slots=True)
class StopReplicaRequest:
    """A request that stops replicas, and deletes those marked so."""

    header: ControlHeader
    partitions: Sequence[StopReplicaPartition]


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A leader's proposal for one partition (AlterPartition).

    ``joiner_epoch`` is the broker epoch of the replica that it adds, as that replica's fetch carried it (KIP-903);
    -1 if it adds none, or the epoch is unknown.
    """

    topic_partition: TopicPartition
    topic_id: str
    leader_epoch: int
    new_isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False
    joiner_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    """A request with the ISR proposals of one leader's broker."""

    broker_id: int
    broker_epoch: int
    partitions: Sequence[IsrProposal]


@dataclass(frozen=True, slots=True)
class IsrVerdict:
    """The controller's response to one proposal: an error, or the state now in ZooKeeper."""

    topic_partition: TopicPartition
    error: ErrorCode
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    """The response to AlterPartition: an error of the whole request, or a verdict for each proposal."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Sequence[IsrVerdict] = ()
