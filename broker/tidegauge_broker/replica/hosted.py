"""The replicas that a broker hosts: found by name, asked who leads them, taken out of service after a defect.

Contract: nothing here decides; the other parts of ``BrokerCore`` share it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect, FailReplica
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import LeaderHint, ReplicaView
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog, Metadata
from tidegauge_broker.replica.refusals import Refusals
from tidegauge_broker.replica.roles import Role
from tidegauge_broker.replica.view import view_of

_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up, and a fetch may name thousands of partitions


class HostedPartitions:
    """The replicas of one broker.

    Args:
        metadata: what the broker knows of the cluster.

    Attributes:
        by_name: each of them.
        refusals: requests between the controller and this broker that were refused.
    """

    __slots__ = ("_metadata", "by_name", "refusals")

    def __init__(self, metadata: Metadata) -> None:
        self.by_name: dict[TopicPartition, Partition] = {}
        self.refusals = Refusals()
        self._metadata = metadata

    def describe(self, now_ms: int, topics: Collection[str] | None = None) -> Iterator[ReplicaView]:
        """Yield all local replicas, by topic and partition; each as it is when it is asked for."""
        return (
            view_of(partition, now_ms)
            for topic_partition, partition in sorted(self.by_name.items())
            if topics is None or topic_partition.topic in topics
        )

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return every online replica's high watermark, for replication-offset-checkpoint."""
        return {
            topic_partition: partition.high_watermark
            for topic_partition, partition in self.by_name.items()
            if partition.role is not Role.OFFLINE
        }

    def last_stable_offsets(self) -> dict[TopicPartition, int]:
        """Return every online replica's last stable offset, for the cleaner."""
        return {
            topic_partition: partition.last_stable_offset
            for topic_partition, partition in self.by_name.items()
            if partition.role is not Role.OFFLINE
        }

    def leader_of(self, topic_partition: TopicPartition, asked_epoch: int | None) -> tuple[Leader | None, ErrorCode]:
        """Return the leader if this broker is it, else the error."""
        partition = self.by_name.get(topic_partition)
        if partition is None:
            known = self._metadata.knows(topic_partition)
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = partition.refusal_as_leader(asked_epoch)
        if error is not _NONE:
            return None, error
        assert partition.leader_role is not None, "the role is leader"
        return partition.leader_role, error

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        """Return the newest leader that the replica or metadata cache knows."""
        partition = self.by_name.get(topic_partition)
        hint = None if partition is None else partition.leader_hint
        known = self._metadata.leader_hint(topic_partition)
        if hint is None or (known is not None and known.leader_epoch > hint.leader_epoch):
            return known
        return hint


def contain(partition: Partition, problem: Exception, out: list[Effect]) -> None:
    """Take the replica offline after a defect in a decision about it; decisions about others hold.

    The partition's earlier effects of the step stay in ``out``: they belong to states that it had.
    """
    partition.mark_changed()
    partition.leader_role = None
    partition.unwritten.clear()
    if partition.role is Role.LEADER:
        partition.enter(Role.NONE)
    out.append(FailReplica(partition.topic_partition, problem))


def is_impossible(state: PartitionState) -> bool:
    """Whether the state violates an invariant, so that no controller can have decided it; such a request is rejected.

    An ISR may hold more than the replicas: the ones that a reassignment removes, from its end to their own (phase B3).
    It may be empty while there is no leader: eligible leader replicas take its place (KIP-966).
    """
    replicas = set(state.replicas)
    return bool(
        state.leader_epoch < 0
        or state.partition_epoch < 0
        or len(replicas) != len(state.replicas)
        or (not replicas.intersection(state.isr) and (state.isr or state.leader != NO_LEADER))
        or (state.leader != NO_LEADER and state.leader not in state.isr)
    )


def targets_previous_incarnation(state: PartitionState, broker_id: int, log: LoadedLog) -> bool:
    """Whether the first state sent to a new process targets its previous incarnation, whose records may be lost.

    A controller that sees a restart takes the replica out of the ISR, or gives the last member a new leader epoch.
    If it has done neither, it has overlooked the restart: the state's writer had not seen it yet, and the controller
    can't tell. The broker can, after an unclean end. A leader that led on with a shorter log would write other
    records at the same offsets in the same epoch; a member of the ISR could be elected without committed records.
    (Kafka has no such refusal. ``INELIGIBLE_REPLICA`` makes the controller do what it would have done.)
    """
    if log.former_epoch < 0 or broker_id not in state.isr:
        return False
    return len(state.isr) > 1 or (state.leader == broker_id and state.leader_epoch <= log.former_epoch)


def message_for(error: ErrorCode, topic_partition: TopicPartition) -> str:
    """Return the generic message for an error code."""
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return f"This broker does not lead {topic_partition}; only the leader serves it"
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"This broker does not know {topic_partition}"
    if error is ErrorCode.KAFKA_STORAGE_ERROR:
        return f"The log directory of {topic_partition} is offline on this broker"
    return f"{error.name} at {topic_partition}"
