"""Requests between the controller and this broker that were refused: events, log lines, and the last one of each
partition.

Rules:
    1. A refusal is an event and a line of the log, the first time: the same request with the same error for the same
       state is refused silently, as a leader may repeat a proposal twenty times a second.
    2. The last refusal of a partition is kept until a request of that kind succeeds, or the replica is deleted, so that
       a broker can be asked why nothing happens. At most ``MOST_KEPT`` are kept: a partition need not be hosted here.
    3. A LeaderAndIsr that repeats the leader epoch in force is no refusal: it brings nothing new, and every new
       controller sends it (ReplicaManager.becomeLeaderOrFollower).

Source: ReplicaManager.becomeLeaderOrFollower and stopReplicas, Partition.handleAlterPartitionError: what they log.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect, LogLine, Note

MOST_KEPT = 1_000
LEADER_AND_ISR = "LeaderAndIsr"
STOP_REPLICA = "StopReplica"
ALTER_PARTITION = "AlterPartition"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused request about one partition.

    Attributes:
        request: its name.
        error: why.
        leader_epoch: of the request.
        topic_id: of the request; empty: it has none.
        own_topic_id: of the replica, as partition.metadata has it; empty: not known here.
    """

    topic_partition: TopicPartition
    request: str
    error: ErrorCode
    leader_epoch: int
    topic_id: str = ""
    own_topic_id: str = ""

    @property
    def ids_differ(self) -> bool:
        """Whether request and replica name different topics."""
        return bool(self.topic_id and self.own_topic_id and self.topic_id != self.own_topic_id)


class Refusals:
    """The refusals of one broker."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[TopicPartition, tuple[Refusal, int]] = {}

    def refused(self, refusal: Refusal, now_ms: int, level: str, text: str, out: list[Effect]) -> None:
        """Keep a refusal, and emit its event and its log line unless it repeats the one before (rules 1 and 2).

        Args:
            refusal: the refused request or change, and the reason.
            now_ms: time in ms.
            level: of the log line.
            text: of the log line; empty: another part has written one.
            out: takes the effects.
        """
        at = refusal.topic_partition
        before = self._last.pop(at, None)
        self._last[at] = (refusal, now_ms)
        if len(self._last) > MOST_KEPT:
            del self._last[next(iter(self._last))]
        if before is not None and before[0] == refusal:
            return
        ids = {"topic_id": refusal.topic_id, "own_topic_id": refusal.own_topic_id} if refusal.ids_differ else {}
        fields = {"request": refusal.request, "error": refusal.error.name, "leader_epoch": refusal.leader_epoch, **ids}
        out.append(Note("refusal", at, refusal.request, fields))
        if text:
            out.append(LogLine(level, text, at))

    def accepted(self, topic_partition: TopicPartition, request: str) -> None:
        """Forget the refusals of a partition that a request has ended: a LeaderAndIsr brings news to proposals too."""
        if self._last:
            last = self._last.get(topic_partition)
            if last is not None and request in {last[0].request, LEADER_AND_ISR}:
                del self._last[topic_partition]

    def deleted(self, topic_partition: TopicPartition) -> None:
        """Forget the refusals of a replica that is deleted."""
        self._last.pop(topic_partition, None)

    def of(self, topics: Collection[str] | None) -> list[tuple[Refusal, int]]:
        """Return each partition's last refusal and its time; ``topics`` None: all."""
        return [
            kept
            for at, kept in sorted(self._last.items(), key=lambda one: one[0])
            if topics is None or at.topic in topics
        ]
