"""The active controller's state: brokers, topics, assignments, leaders, and the state of each partition and replica.

Filled from ZooKeeper at fail-over and changed only by the decisions in this package. ``leadership`` is the cache of the
state znodes; the znodes themselves are authoritative, and every write to one expects the version known here or just
read. A broker that shuts down stays registered: it still gets UpdateMetadata and StopReplica, but it does not count as
online. Source: kafka.controller.ControllerContext.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tidegauge.cluster_metadata import Assignment, Leadership, PartitionState
from tidegauge.control import NO_LEADER, Endpoint
from tidegauge.partition import TopicPartition, partition_named
from tidegauge_controller.rules.election import Choose

INITIAL_LEADER_EPOCH = 0
INITIAL_PARTITION_EPOCH = 0
# It makes a named tuple in a third of the time.
_new_tuple = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - typeshed's gap


class PartitionStatus(Enum):
    """States of a partition (kafka.controller.PartitionState)."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(Enum):
    """States of a replica (kafka.controller.ReplicaState)."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


class Replica(NamedTuple):
    """One replica: a partition on a broker."""

    topic_partition: TopicPartition
    broker_id: int


class LiveBroker(NamedTuple):
    """A registered broker; the epoch is the czxid of its registration."""

    endpoint: Endpoint
    epoch: int


NO_REPLICAS = Assignment(())
"""The assignment of an unknown partition."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The broker settings that the controller's decisions depend on."""

    unclean_leader_election: bool = False
    delete_topic_enable: bool = True
    leader_imbalance_percentage: int = 10
    trusts_restarted_brokers: bool = False
    control_plane_listener: str = ""
    """Name of the listener that brokers use among themselves; the same on all of them."""
    tried_election: Choose | None = None
    """An election that is tried in place of Kafka's after the loss of a leader; None in every broker process."""


@dataclass(slots=True)
class ControllerContext:
    """Everything that one controller knows during its term.

    Attributes:
        controller_id: the broker that is the controller.
        epoch: its controller epoch.
        epoch_version: zkVersion of ``/controller_epoch`` at its election: what every write checks.
        cause: the current event, for the event log.
        live: registered brokers, including those that shut down.
        offline_directories: replicas whose log directory failed, by broker.
        reassigning: partitions whose replicas are being reassigned.
        topic_ids, topic_names: the topics' ids by name, and their names by id.
        removals: of those that have got their new replicas, the brokers that still delete an old one.
        legacy_reassignment_seen: the transaction that created the last ``/admin/reassign_partitions`` that was handled.
    """

    controller_id: int
    epoch: int = 0
    epoch_version: int = -1
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    cause: str = "Startup"
    live: dict[int, LiveBroker] = field(default_factory=dict[int, LiveBroker])
    shutting_down: set[int] = field(default_factory=set[int])
    topics: set[str] = field(default_factory=set[str])
    topic_ids: dict[str, str] = field(default_factory=dict[str, str])
    topic_names: dict[str, str] = field(default_factory=dict[str, str])
    assignments: dict[str, dict[int, Assignment]] = field(default_factory=dict[str, dict[int, Assignment]])
    leadership: dict[TopicPartition, Leadership] = field(default_factory=dict[TopicPartition, Leadership])
    partition_status: dict[TopicPartition, PartitionStatus] = field(
        default_factory=dict[TopicPartition, PartitionStatus]
    )
    replica_status: dict[Replica, ReplicaStatus] = field(default_factory=dict[Replica, ReplicaStatus])
    offline_directories: dict[int, set[TopicPartition]] = field(default_factory=dict[int, set[TopicPartition]])
    topics_to_delete: set[str] = field(default_factory=set[str])
    topics_deletion_started: set[str] = field(default_factory=set[str])
    topics_ineligible_for_deletion: set[str] = field(default_factory=set[str])
    reassigning: set[TopicPartition] = field(default_factory=set[TopicPartition])
    removals: dict[TopicPartition, set[int]] = field(default_factory=dict[TopicPartition, set[int]])
    legacy_reassignment_seen: int = 0

    # Brokers

    @property
    def live_brokers(self) -> frozenset[int]:
        """Return the registered brokers that do not shut down."""
        return frozenset(self.live) - self.shutting_down

    @property
    def live_or_shutting_down(self) -> KeysView[int]:
        """Return all registered brokers: a view, which changes with them."""
        return self.live.keys()

    @property
    def trusts_restarted_brokers(self) -> bool:
        """Whether a joining replica may have restarted since the fetch that qualified it."""
        return self.settings.trusts_restarted_brokers

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a registered broker."""
        return self.live[broker_id].epoch

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints of all registered brokers, by id."""
        return tuple([self.live[broker_id].endpoint for broker_id in sorted(self.live)])

    def is_online(self, broker_id: int, at: TopicPartition, *, shutting_down_counts: bool = False) -> bool:
        """Whether a replica's broker is live and does not shut down, and its log directory is healthy."""
        return (
            broker_id in self.live
            and (shutting_down_counts or broker_id not in self.shutting_down)
            and at not in self.offline_directories.get(broker_id, ())
        )

    # Topics

    def is_to_be_deleted(self, topic: str) -> bool:
        """Return whether the topic is marked for deletion."""
        return topic in self.topics_to_delete

    def partitions(self, topics: Iterable[str] | None = None) -> list[TopicPartition]:
        """Return all partitions of the topics, in order of name and index."""
        return [at for at, _ in self._assigned(topics)]

    def _assigned(self, topics: Iterable[str] | None) -> list[tuple[TopicPartition, tuple[int, ...]]]:
        """Return topics' partitions, by name and index, with their replicas."""
        return [
            (partition_named(topic, partition), assigned[partition].replicas)
            for topic in sorted(self.topics if topics is None else topics)
            if (assigned := self.assignments.get(topic))
            for partition in sorted(assigned)
        ]

    def assignment(self, at: TopicPartition) -> Assignment:
        """Return a partition's replicas; empty for one that is unknown."""
        partitions = self.assignments.get(at.topic)
        return NO_REPLICAS if partitions is None else partitions.get(at.partition, NO_REPLICAS)

    def set_assignment(self, at: TopicPartition, assignment: Assignment) -> None:
        """Replace a partition's replicas."""
        self.assignments.setdefault(at.topic, {})[at.partition] = assignment

    def replicas(self, topics: Iterable[str] | None = None) -> list[Replica]:
        """Return all replicas of the topics' partitions."""
        return [
            _new_tuple(Replica, (at, broker_id)) for at, replicas in self._assigned(topics) for broker_id in replicas
        ]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        """Return all replicas of these partitions."""
        return [_new_tuple(Replica, (at, broker_id)) for at in partitions for broker_id in self.assignment(at).replicas]

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        """Return all replicas on these brokers."""
        wanted = frozenset(broker_ids)
        return [
            _new_tuple(Replica, (at, broker_id))
            for at, replicas in self._assigned(None)
            for broker_id in replicas
            if broker_id in wanted
        ]

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """Return all partitions with a replica on this broker."""
        return [at for at, replicas in self._assigned(None) if broker_id in replicas]

    def partitions_in(self, *states: PartitionStatus) -> list[TopicPartition]:
        """Return all partitions in one of these states."""
        return sorted(at for at, state in self.partition_status.items() if state in states)

    def replicas_in(self, topic: str, *states: ReplicaStatus) -> list[Replica]:
        """Return a topic's replicas in one of these states."""
        return [
            replica
            for replica in self.replicas([topic])
            if self.replica_status.get(replica, ReplicaStatus.NON_EXISTENT) in states
        ]

    def remove_topic(self, topic: str) -> None:
        """Forget a topic."""
        for at in self.partitions([topic]):
            self.leadership.pop(at, None)
            self.partition_status.pop(at, None)
            self.reassigning.discard(at)
            self.removals.pop(at, None)
        for replica in self.replicas([topic]):
            self.replica_status.pop(replica, None)
        self.topics.discard(topic)
        self.assignments.pop(topic, None)
        self.topic_names.pop(self.topic_ids.pop(topic, ""), None)

    def name_topic(self, topic: str, topic_id: str) -> None:
        """Remember a topic's id."""
        self.topic_names.pop(self.topic_ids.get(topic, ""), None)
        self.topic_ids[topic] = topic_id
        self.topic_names[topic_id] = topic

    def state_of(self, at: TopicPartition, leadership: Leadership) -> PartitionState:
        """Return the state of a partition as control requests carry it."""
        assignment = self.assignment(at)
        return PartitionState(
            topic_partition=at,
            topic_id=self.topic_ids.get(at.topic, ""),
            controller_epoch=leadership.controller_epoch,
            leader=leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=leadership.isr,
            partition_epoch=leadership.partition_epoch,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            recovering=leadership.recovering,
        )

    def partitions_with_leaders(self) -> list[TopicPartition]:
        """Return the partitions that have a state znode, without those to be deleted."""
        return sorted(at for at in self.leadership if not self.is_to_be_deleted(at.topic))

    def leaders_offline(self) -> list[TopicPartition]:
        """Return the partitions whose leader is offline, except those being deleted."""
        return sorted(
            at
            for at, leadership in self.leadership.items()
            if not self.is_online(leadership.leader, at) and not self.is_to_be_deleted(at.topic)
        )


__all__ = [
    "INITIAL_LEADER_EPOCH",
    "INITIAL_PARTITION_EPOCH",
    "NO_LEADER",
    "ControllerContext",
    "ControllerSettings",
    "LiveBroker",
    "PartitionStatus",
    "Replica",
    "ReplicaStatus",
]
