"""The state of a partition as its controller decided it: what the replication core takes in, in either mode. Pure.

LeaderAndIsr requests carry it, and so does a change of KRaft's metadata.
Source: ``LeaderAndIsrRequest.PartitionState``, ``org.apache.kafka.metadata.PartitionRegistration``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.partition import TopicPartition

NO_LEADER = -1
"""The leader of a partition that has none."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one partition.

    Attributes:
        controller_epoch: of the controller that decided it; the core does not look at it.
        leader: -1 while there is none.
        isr: in stored order.
        partition_epoch: rises with each change; in ZooKeeper mode the zkVersion of the partition's state znode.
        replicas: in assignment order; those that a reassignment adds and removes are among them.
        recovering: an unclean election made the leader, and it has not led a full ISR since.
        elr: eligible leader replicas (KIP-966); empty in ZooKeeper mode.
        directory: id of the log directory to which the receiver's replica is assigned (KIP-858); None in ZooKeeper
            mode: the broker chooses it.
    """

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
    elr: tuple[int, ...] = ()
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaStop:
    """A replica that its broker is to stop, and perhaps to delete; without a leader epoch the epoch is not checked."""

    topic_partition: TopicPartition
    leader_epoch: int | None
    delete: bool
