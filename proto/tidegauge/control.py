"""The control plane's messages as plain values: what controller and brokers tell each other.

The pure cores on both sides speak these; ``control.proto`` is their form on the wire. A leader of ``NO_LEADER``
means none. ``partition_epoch`` is the zkVersion of the partition's state znode; ISR lists keep stored order.
Source: LeaderAndIsr, UpdateMetadata, StopReplica, AlterPartition of Kafka 3.9 (kafka-behaviour 8.8, 8.11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode
from tidegauge.listeners import Listener
from tidegauge.partition import TopicPartition

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker is reached.

    Attributes:
        host, port: of the listener that brokers use among themselves; for a client, of the one through which it asked.
        listeners: all that the broker advertises; empty where only one is known.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    listeners: tuple[Listener, ...] = ()

    def through(self, listener: str) -> Endpoint | None:
        """The broker as seen through the listener of this name; None: it has none of that name."""
        for one in self.listeners:
            if one.name == listener:
                return Endpoint(self.broker_id, one.host, one.port, self.rack)
        return None if self.listeners else self

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ControlHeader:
    """Sender and receiver of a control request; the broker epoch is the receiver's, as the sender knows it."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one partition as the controller decided it."""

    topic_partition: TopicPartition
    topic_id: str
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class LeaderAndIsrPartition:
    """One partition of a LeaderAndIsr request."""

    state: PartitionState
    is_new: bool


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest:
    """Makes replicas leaders or followers."""

    header: ControlHeader
    partitions: Sequence[LeaderAndIsrPartition]
    live_leaders: Sequence[Endpoint]


@dataclass(frozen=True, slots=True)
class PartitionsResponse:
    """The answer to LeaderAndIsr and StopReplica: an error of the whole, or one for each partition."""

    error: ErrorCode = ErrorCode.NONE
    partitions: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdateMetadataPartition:
    """One partition of an UpdateMetadata request; ``deleted`` says: forget it."""

    state: PartitionState
    offline_replicas: tuple[int, ...] = ()
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest:
    """Fills a broker's metadata cache; the live brokers are always complete, partitions only what changed.

    Attributes:
        startup_complete: what the receiver's registration, or the sender's election, brings has been sent before this.
    """

    header: ControlHeader
    partitions: Sequence[UpdateMetadataPartition]
    live_brokers: Sequence[Endpoint]
    startup_complete: bool = False


@dataclass(frozen=True, slots=True)
class StopReplicaPartition:
    """One replica to stop; no leader epoch means that it is not checked."""

    topic_partition: TopicPartition
    leader_epoch: int | None
    delete: bool


@dataclass(frozen=True, slots=True)
class StopReplicaRequest:
    """Makes replicas stop, and perhaps go."""

    header: ControlHeader
    partitions: Sequence[StopReplicaPartition]


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A leader's proposal for one partition (AlterPartition).

    ``joiner_epoch`` is the broker epoch of the replica that it adds, as that one's fetch carried it (KIP-903); -1 where
    it adds none, or that is unknown.
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
    """Proposals of one leader broker."""

    broker_id: int
    broker_epoch: int
    partitions: Sequence[IsrProposal]


@dataclass(frozen=True, slots=True)
class IsrVerdict:
    """The controller's answer to one proposal: an error, or the state now in ZooKeeper."""

    topic_partition: TopicPartition
    error: ErrorCode
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    """An error of the whole, or a verdict for each proposal."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Sequence[IsrVerdict] = ()
