"""Which leaders this broker follows, and the rounds in flight: one for each leader, partitions in a fair order.

Rules (AbstractFetcherThread.doWork):
    1. A round asks for every partition of a leader that is ready; it is in flight until it is taken back. Those
       that must know where an epoch ends before they fetch (KIP-101) come first, in a round of their own.
    2. A response counts only for the round whose number it carries; each number is used once (invariant I7).
    3. A partition that brought records goes to the end of the order, so that none starves behind a busy one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect, FailReplica
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.messages import EpochEndResult, EpochRound, FetchedPartition, FetchRound, Wait
from tidegauge_broker.replica.partition import Partition

Admits = Callable[[TopicPartition], bool]


class Rounds:
    """The partitions that follow, by leader, and the rounds in flight."""

    def __init__(self) -> None:
        self._followed: dict[int, dict[TopicPartition, Partition]] = {}
        self._in_flight: dict[int, FetchRound | EpochRound] = {}
        self._last_request_id = 0

    def __len__(self) -> int:
        return len(self._in_flight)

    def leaders(self) -> set[int]:
        """Return the leaders that are followed."""
        return set(self._followed)

    def followed(self, leader: int) -> Mapping[TopicPartition, Partition]:
        """Return the partitions that follow this leader, in the order of the next round."""
        return self._followed.get(leader, {})

    def begin(self, partition: Partition, leader: int) -> None:
        """Let the partition follow this leader from now on."""
        self._followed.setdefault(leader, {})[partition.topic_partition] = partition

    def end(self, partition: Partition, leader: int) -> bool:
        """Let the partition follow this leader no longer; returns whether it did."""
        followed = self._followed.get(leader)
        if followed is None or followed.pop(partition.topic_partition, None) is None:
            return False
        if not followed:
            del self._followed[leader]
        return True

    def next(self, leader: int, now_ms: int, admits: Admits | None = None) -> FetchRound | EpochRound | Wait:
        """Return the next round for this leader, and mark it as in flight for its partitions.

        With ``admits``, the round holds only partitions for which it returns True.
        """
        ready: list[Follower] = []
        truncating: list[Follower] = []
        wake_ms: int | None = None
        for partition in self.followed(leader).values():
            if admits is not None and not admits(partition.topic_partition):
                continue
            role = partition.follower_role
            assert role is not None
            if role.is_ready(now_ms):
                (truncating if role.truncating else ready).append(role)
            elif role.in_flight is None and not role.failed:
                wake_ms = role.delayed_until_ms if wake_ms is None else min(wake_ms, role.delayed_until_ms)
        if not ready and not truncating:
            return Wait(wake_ms)
        self._last_request_id += 1
        chosen = self._round(self._last_request_id, leader, ready, truncating)
        self._in_flight[chosen.request_id] = chosen
        return chosen

    @staticmethod
    def _round(
        request_id: int, leader: int, ready: Sequence[Follower], truncating: Sequence[Follower]
    ) -> FetchRound | EpochRound:
        if truncating:
            return EpochRound(request_id, leader, [role.ask_epoch(request_id) for role in truncating])
        first_fetches = {role.partition.topic_partition for role in ready if not role.has_fetched}
        return FetchRound(request_id, leader, [role.ask(request_id) for role in ready], first_fetches)

    def fetch_response_received(
        self, leader: int, request_id: int, results: Sequence[FetchedPartition], now_ms: int, out: list[Effect]
    ) -> list[Partition]:
        """Apply the response to a FetchRound; returns the partitions that took theirs."""
        received = {result.topic_partition: result for result in results}
        took: list[Partition] = []
        for role in self._take_back(leader, request_id):
            result = received.get(role.partition.topic_partition)
            try:
                if result is None:
                    role.nothing_new(request_id)
                elif role.fetch_response_received(request_id, result, now_ms, out):
                    if result.records:
                        self._to_the_end(role.partition, leader)
                    took.append(role.partition)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                out.append(FailReplica(role.partition.topic_partition, problem))
        return took

    def epoch_ends_received(
        self, leader: int, request_id: int, results: Sequence[EpochEndResult], now_ms: int, out: list[Effect]
    ) -> list[Partition]:
        """Apply the response to an EpochRound; returns the partitions that took theirs."""
        received = {result.topic_partition: result for result in results}
        took: list[Partition] = []
        for role in self._take_back(leader, request_id):
            result = received.get(role.partition.topic_partition)
            try:
                if result is None:
                    role.request_lost(request_id, now_ms)
                elif role.epoch_end_received(request_id, result, now_ms, out):
                    took.append(role.partition)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                out.append(FailReplica(role.partition.topic_partition, problem))
        return took

    def failed(self, leader: int, request_id: int, now_ms: int) -> None:
        """Drop a round that got no response."""
        for role in self._take_back(leader, request_id):
            role.request_lost(request_id, now_ms)

    def _take_back(self, leader: int, request_id: int) -> list[Follower]:
        """Return the round's partitions that still follow this leader; none if it is not in flight."""
        chosen = self._in_flight.pop(request_id, None)
        followed = self.followed(leader)
        found = (followed.get(wanted.topic_partition) for wanted in (chosen.partitions if chosen is not None else ()))
        return [at.follower_role for at in found if at is not None and at.follower_role is not None]

    def _to_the_end(self, partition: Partition, leader: int) -> None:
        """Move a partition to the end of the order (rule 3)."""
        followed = self._followed[leader]
        followed[partition.topic_partition] = followed.pop(partition.topic_partition)
