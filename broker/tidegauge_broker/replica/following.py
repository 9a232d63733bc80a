"""The rounds of this broker as a follower, from the choice of partitions to the leader's response.

Source: AbstractFetcherThread and ReplicaFetcherThread.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.hosted import HostedPartitions
from tidegauge_broker.replica.messages import (
    CoreSettings,
    EpochEndResult,
    EpochRound,
    FetchedPartition,
    FetchRound,
    Wait,
)
from tidegauge_broker.replica.parked import ParkedOperations
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.quota import ReplicationQuota, is_throttled
from tidegauge_broker.replica.rounds import Admits, Rounds


class Following:
    """Fetch from leaders.

    Args:
        broker_id: this broker.
        settings: of the core.
        hosted: the replicas.
        parked: what waits for them.

    Attributes:
        rounds: the replicas that follow each leader, and the rounds in flight.
        quota: how fast throttled replicas are copied to here.
    """

    __slots__ = ("_broker_id", "_hosted", "_parked", "_settings", "quota", "rounds")

    def __init__(
        self,
        broker_id: int,
        settings: CoreSettings,
        hosted: HostedPartitions,
        parked: ParkedOperations,
        rounds: Rounds,
        quota: ReplicationQuota,
    ) -> None:
        self.rounds = rounds
        self.quota = quota
        self._broker_id = broker_id
        self._settings = settings
        self._hosted = hosted
        self._parked = parked

    def next_round(self, leader: int, now_ms: int, admits: Admits | None = None) -> FetchRound | EpochRound | Wait:
        """Return the leader's next round over admitted partitions, now in flight."""
        held = self._held_by_quota(leader) if self.quota.is_exceeded(now_ms) else None
        if not held:
            return self.rounds.next(leader, now_ms, admits)
        chosen = self.rounds.next(leader, now_ms, lambda at: at not in held and (admits is None or admits(at)))
        if not isinstance(chosen, Wait):
            return chosen
        again_ms = now_ms + self._settings.replica_fetch_backoff_ms
        return Wait(again_ms if chosen.until_ms is None else min(again_ms, chosen.until_ms))

    def _held_by_quota(self, leader: int) -> set[TopicPartition]:
        """Throttled partitions that lack records; they wait while the follower's quota is exceeded."""
        return {
            at
            for at, partition in self.rounds.followed(leader).items()
            if is_throttled(partition.rules.follower_throttled_replicas, at.partition, self._broker_id)
            and partition.follower_role is not None
            and partition.follower_role.lag != 0
        }

    def fetch_response_received(
        self, leader: int, request_id: int, partitions: Sequence[FetchedPartition], now_ms: int
    ) -> list[Effect]:
        """Apply the response to a FetchRound. Partitions of the round that it leaves out had nothing new."""
        out: list[Effect] = []
        self._count(partitions, now_ms)
        self._settle(self.rounds.fetch_response_received(leader, request_id, partitions, now_ms, out), out)
        return out

    def part_received(
        self, leader: int, request_id: int, partitions: Sequence[FetchedPartition], now_ms: int
    ) -> list[Effect]:
        """Apply a part of a response that has begun (``Rounds.response_begins``)."""
        out: list[Effect] = []
        self._count(partitions, now_ms)
        self._settle(self.rounds.part_received(leader, request_id, partitions, now_ms, out), out)
        return out

    def _count(self, partitions: Sequence[FetchedPartition], now_ms: int) -> None:
        """Count throttled records against the follower's quota."""
        for response in partitions:
            at, hosted = response.topic_partition, self._hosted.by_name.get(response.topic_partition)
            throttled = () if hosted is None else hosted.rules.follower_throttled_replicas
            if response.records and is_throttled(throttled, at.partition, self._broker_id):
                self.quota.record(len(response.records), now_ms)

    def _settle(self, took: Sequence[Partition], out: list[Effect]) -> None:
        """Try again what waits for partitions that have taken records."""
        for partition in took:
            self._parked.settle(partition, out)
            partition.unwritten.clear()

    def epoch_ends_received(
        self, leader: int, request_id: int, responses: Sequence[EpochEndResult], now_ms: int
    ) -> list[Effect]:
        """Apply the response to an EpochRound. A partition that it leaves out asks again later."""
        out: list[Effect] = []
        for partition in self.rounds.epoch_ends_received(leader, request_id, responses, now_ms, out):
            self._parked.settle(partition, out)
        return out
