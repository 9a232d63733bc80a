"""Role changes of one broker's replicas between two images: deletions, then leaderships, then followings.

The changes come from the images alone, so that they do not depend on how the new one came about. (Kafka takes them from
the records of the delta; a broker that loads a snapshot while it runs may so remain leader of a partition that was
taken from it, KAFKA-16892.)
Source: ``TopicsDelta.localChanges``, ``TopicDelta.localChanges``, ``ReplicaManager.applyDelta``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegauge.partition import TopicPartition, partition_named
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge_controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from tidegauge_controller.metadata.sorted_map import SortedMap, differences

_NO_PARTITIONS: SortedMap[int, PartitionRegistration] = SortedMap()


@dataclass(slots=True)
class RoleChanges:
    """The role changes of a broker, to be carried out in this order.

    Attributes:
        deletions: of replicas that the broker no longer has; a topic that was created again under its name is deleted
            first.
        leaders: states of the partitions that it leads, if anything about them changed.
        elected: the ``leaders`` that have a new leader epoch; coordinators load these again.
        followers: states of the partitions that it follows, or that have no leader, if anything about them changed.
        directories: the directory of each replica whose directory changed.
    """

    deletions: list[ReplicaStop] = field(default_factory=list[ReplicaStop])
    leaders: list[PartitionState] = field(default_factory=list[PartitionState])
    elected: set[TopicPartition] = field(default_factory=set[TopicPartition])
    followers: list[PartitionState] = field(default_factory=list[PartitionState])
    directories: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def __bool__(self) -> bool:
        return bool(self.deletions or self.leaders or self.followers)


def role_changes(broker_id: int, old: MetadataImage, new: MetadataImage) -> RoleChanges:
    """Return the role changes of a broker's replicas between two images."""
    changes = RoleChanges()
    for _, was, topic in differences(old.topics, new.topics):
        before = _NO_PARTITIONS if was is None else was.partitions
        after = _NO_PARTITIONS if topic is None else topic.partitions
        for partition, previous, current in differences(before, after):
            had = previous is not None and broker_id in previous.replicas
            if current is not None and topic is not None and broker_id in current.replicas:
                state = partition_state(broker_id, topic, partition, current, new.provenance.epoch)
                _assigned(broker_id, state, previous if had else None, changes)
            elif had and was is not None:
                changes.deletions.append(ReplicaStop(partition_named(was.name, partition), None, delete=True))
    return changes


def _assigned(
    broker_id: int, state: PartitionState, previous: PartitionRegistration | None, changes: RoleChanges
) -> None:
    """Sort a partition of the broker into leaders or followers."""
    at = state.topic_partition
    if previous is None or previous.directory(broker_id) != state.directory:
        assert state.directory is not None
        changes.directories[at] = state.directory
    if state.leader != broker_id:
        changes.followers.append(state)
        return
    changes.leaders.append(state)
    if previous is None or previous.leader_epoch != state.leader_epoch:
        changes.elected.add(at)


def partition_state(
    broker_id: int, topic: TopicImage, partition: int, registration: PartitionRegistration, controller_epoch: int
) -> PartitionState:
    """Return a partition's state in the replication core's form.

    Args:
        broker_id: the receiver, which has a replica.
        topic: the partition's topic.
        partition: its index.
        registration: its state.
        controller_epoch: the epoch of the quorum's leader that decided it.
    """
    return PartitionState(
        partition_named(topic.name, partition),
        topic.topic_id,
        controller_epoch,
        registration.leader,
        registration.leader_epoch,
        registration.isr,
        registration.partition_epoch,
        registration.replicas,
        registration.adding,
        registration.removing,
        registration.recovering,
        registration.elr,
        registration.directory(broker_id),
    )
