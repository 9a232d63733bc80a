"""The part of a controller's state that the rules look at. A controller of either mode has it."""

from __future__ import annotations

from typing import Protocol

from tidegauge.cluster_metadata import Assignment, Leadership
from tidegauge.partition import TopicPartition


class ClusterState(Protocol):
    """Brokers and assignments, for elections.

    Attributes:
        epoch: of the controller.
        shutting_down: brokers that are about to stop.
    """

    epoch: int
    shutting_down: set[int]

    def assignment(self, at: TopicPartition) -> Assignment:
        """Return a partition's replicas; empty for one that is unknown."""
        ...

    def is_online(self, broker_id: int, at: TopicPartition, *, shutting_down_counts: bool = False) -> bool:
        """Whether a replica's broker is live and does not shut down, and its log directory is healthy."""
        ...


class LedCluster(Protocol):
    """Topics, leaders and the brokers that may be in an ISR, for proposals of an ISR.

    Attributes:
        epoch: of the controller.
        topic_ids: the topics' ids by name.
        leadership: the state of each partition that has one.
    """

    epoch: int
    topic_ids: dict[str, str]
    leadership: dict[TopicPartition, Leadership]

    @property
    def live_brokers(self) -> frozenset[int]:
        """Return the registered brokers that do not shut down."""
        ...

    @property
    def trusts_restarted_brokers(self) -> bool:
        """Whether a joining replica may have restarted since the fetch that qualified it."""
        ...

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a live broker's registration."""
        ...
