"""The cluster as a script knows it: what the rules of a controller look at, without any store."""

from __future__ import annotations

from collections.abc import Collection

from tidegauge.cluster_metadata import Assignment, Leadership, PartitionState
from tidegauge.partition import TopicPartition


class KnownCluster:
    """``ClusterState`` and ``LedCluster`` of tidegauge_controller.rules, filled by its owner.

    Args:
        epoch: of the controller.
        topic_ids: the topics' ids by name.
        brokers: the live brokers, each registered with epoch 1.
    """

    trusts_restarted_brokers = False

    def __init__(self, epoch: int, topic_ids: dict[str, str], brokers: Collection[int]) -> None:
        self.epoch = epoch
        self.topic_ids = topic_ids
        self.shutting_down: set[int] = set()
        self.leadership: dict[TopicPartition, Leadership] = {}
        self.assignments: dict[TopicPartition, Assignment] = {}
        self.broker_epochs = dict.fromkeys(brokers, 1)

    @property
    def live_brokers(self) -> frozenset[int]:
        """Return the live brokers."""
        return frozenset(self.broker_epochs)

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a live broker's registration."""
        return self.broker_epochs[broker_id]

    def assignment(self, at: TopicPartition) -> Assignment:
        """Return a partition's replicas."""
        return self.assignments[at]

    def is_online(self, broker_id: int, at: TopicPartition, *, shutting_down_counts: bool = False) -> bool:
        """Return whether a replica's broker is live."""
        del at, shutting_down_counts
        return broker_id in self.broker_epochs

    def state_of(self, at: TopicPartition, leadership: Leadership) -> PartitionState:
        """Return the state of a partition as a broker takes it in."""
        return PartitionState(
            topic_partition=at,
            topic_id=self.topic_ids[at.topic],
            controller_epoch=leadership.controller_epoch,
            leader=leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=leadership.isr,
            partition_epoch=leadership.partition_epoch,
            replicas=self.assignments[at].replicas,
            recovering=leadership.recovering,
        )
