"""The partitions that this broker leads, as its share partitions need them."""

from __future__ import annotations

import asyncio

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effect_executor import FetchResults
from tidegauge_broker.replica.messages import FetchRequest, LeaderHint
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.replication.request_token import ResponseRoom


class Led:
    """The led partitions, for the share partitions.

    Args:
        replicas: of this broker.
    """

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def leadership(self, at: TopicPartition) -> tuple[int, ErrorCode]:
        """Return the epoch in which this broker leads a partition, or an error."""
        leader, error = self._replicas.core.hosted.leader_of(at, None)
        return (-1, error) if leader is None else (leader.partition.leader_epoch, error)

    def leader_hint(self, at: TopicPartition) -> LeaderHint | None:
        """Return a partition's newest leader known here, or None."""
        return self._replicas.core.hosted.leader_hint(at)

    def watch_leadership(self, at: TopicPartition) -> None:
        """Report the loss of a leadership from now on."""
        self._replicas.watch_leadership(at)

    def unwatch_leadership(self, at: TopicPartition) -> None:
        """Report it no longer."""
        self._replicas.core.unwatch_leadership(at)

    def begin_fetch(self, request: FetchRequest, room: ResponseRoom | None = None) -> asyncio.Future[FetchResults]:
        """Read now, or as soon as there is enough to read."""
        return self._replicas.begin_fetch(request, room)

    def topic_id(self, at: TopicPartition) -> str:
        """Return the topic id of a local replica; empty without one."""
        return self._replicas.topic_id(at)

    def readable_end(self, at: TopicPartition, *, reads_committed: bool) -> int:
        """Return a local replica's high watermark, or last stable offset; -1: none."""
        partition = self._replicas.core.partition(at)
        if partition is None:
            return -1
        return partition.last_stable_offset if reads_committed else partition.high_watermark

    def log_start(self, at: TopicPartition) -> int:
        """Return the log start of a local replica; 0 without one."""
        partition = self._replicas.core.partition(at)
        return 0 if partition is None else partition.log_start_offset
