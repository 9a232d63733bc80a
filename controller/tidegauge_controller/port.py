"""A broker's interface to the controller in its process, of either kind.

Contract: each method returns NOT_CONTROLLER, or None if it says so, unless this process is the active controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from tidegauge.cluster_metadata import Assignment
from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_controller.admin import Mutate, NewPartitions, NewTopic, TopicOutcome, unlimited

Verdict = tuple[ErrorCode, str]
"""The outcome for a partition: an error with its message."""


class Controller(Protocol):
    """The controller in a broker's process."""

    @property
    def active_controller_id(self) -> int | None:
        """Return the active controller known to this broker, or None."""
        ...

    @property
    def is_active(self) -> bool:
        """Return whether this process is the active controller, as far as it knows."""
        ...

    @property
    def forwards(self) -> bool:
        """Return whether this process hands requests of admins on to the active controller, as in KRaft mode."""
        ...

    def unclean_election_enabled(self, topic: str | None = None) -> None:
        """Elect if it helps: ``unclean.leader.election.enable`` has become true, for a topic or (None) for all."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Handle a leader's proposal of in-sync replicas."""
        ...

    async def topic_names(self, topic_ids: Collection[str]) -> dict[str, str] | None:
        """Return the names of topics by their ids; None: not the controller."""
        ...

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, list[TopicPartition]]:
        """Move leaders away from a broker that stops; return the partitions that it still leads."""
        ...

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, int, int]:
        """Allocate a block of producer ids: error, first id, count."""
        ...

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, Verdict] | None:
        """Begin, replace or (None) cancel reassignments; None: not the controller."""
        ...

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, Assignment] | None:
        """Return the reassignments in progress; None: not the controller.

        Args:
            partitions: the partitions; None: all.
        """
        ...

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, *, unclean: bool, timeout_ms: int
    ) -> dict[TopicPartition, Verdict] | None:
        """Elect on demand; return when this broker's metadata shows the new leaders. None: not the controller."""
        ...

    async def create_topics(
        self, topics: Sequence[NewTopic], timeout_ms: int, mutate: Mutate = unlimited, *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics; return when each partition has a leader in this broker's metadata."""
        ...

    async def create_partitions(
        self,
        topics: Sequence[NewPartitions],
        timeout_ms: int,
        mutate: Mutate = unlimited,
        *,
        validate_only: bool = False,
    ) -> list[TopicOutcome]:
        """Add partitions; return when each new one has a leader in this broker's metadata."""
        ...

    async def delete_topics(
        self, names: Sequence[str], timeout_ms: int, mutate: Callable[[str], None] = unlimited
    ) -> list[TopicOutcome]:
        """Delete topics; return when this broker's metadata no longer shows them."""
        ...
