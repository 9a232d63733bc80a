"""The leaders that this broker follows, and the rounds in flight: one for each leader, partitions in a fair order.

Rules (AbstractFetcherThread.doWork):
    1. A round asks for every partition of a leader that is ready; it is in flight until it is taken back. Those
       that must know where an epoch ends before they fetch (KIP-101) come first, in a round of their own.
    2. A response counts only for the round whose number it carries; each number is used once (invariant I7).
    3. A partition that brought records goes to the end of the order, so that none starves behind a busy one.

A round for all partitions looks only at those that may ask something else than before (``standing_rounds``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect, FailReplica
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.messages import EpochEndResult, EpochRound, FetchedPartition, FetchRound, Wait
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.standing_rounds import StandingRounds

Admits = Callable[[TopicPartition], bool]


class Rounds:
    """The partitions that follow, by leader, and the rounds in flight."""

    def __init__(self) -> None:
        self._by_leader: dict[int, StandingRounds] = {}
        self._in_flight: dict[int, FetchRound | EpochRound] = {}
        self._last_request_id = 0

    def __len__(self) -> int:
        return len(self._in_flight)

    def leaders(self) -> set[int]:
        """Return the leaders that are followed."""
        return set(self._by_leader)

    @property
    def has_leaders(self) -> bool:
        """Whether any leader is followed."""
        return bool(self._by_leader)

    def followed(self, leader: int) -> Mapping[TopicPartition, Partition]:
        """Return the partitions that follow this leader, in the next round's order."""
        rounds = self._by_leader.get(leader)
        return {} if rounds is None else rounds.followed

    def begin(self, partition: Partition, leader: int) -> None:
        """Let the partition follow this leader from now on."""
        assert partition.follower_role is not None
        assert partition.follower_role.leader == leader != partition.broker_id
        rounds = self._by_leader.get(leader)
        if rounds is None:
            rounds = self._by_leader[leader] = StandingRounds()
        rounds.begin(partition)

    def end(self, partition: Partition, leader: int) -> bool:
        """Let the partition follow this leader no longer; returns whether it did."""
        rounds = self._by_leader.get(leader)
        if rounds is None or not rounds.end(partition):
            return False
        if not rounds.followed:
            del self._by_leader[leader]
        return True

    def next(self, leader: int, now_ms: int, admits: Admits | None = None) -> FetchRound | EpochRound | Wait:
        """Return this leader's next round; mark its partitions as in flight.

        With ``admits``, the round holds only partitions for which it returns True.
        """
        rounds = self._by_leader.get(leader)
        if rounds is None:
            return Wait(None)
        number = self._last_request_id + 1
        if admits is None and rounds.in_flight is None:
            chosen = rounds.next(number, leader, now_ms)
        else:
            chosen = self._chosen(number, leader, now_ms, admits)
        if not isinstance(chosen, Wait):
            assert number not in self._in_flight, "I7"
            assert chosen.request_id == number, "I7"
            self._last_request_id = number
            self._in_flight[number] = chosen
        return chosen

    def _chosen(self, number: int, leader: int, now_ms: int, admits: Admits | None) -> FetchRound | EpochRound | Wait:
        """Return a round that looks at every partition."""
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
        if truncating:
            return EpochRound(number, leader, [role.ask_epoch(number) for role in truncating])
        if not ready:
            return Wait(wake_ms)
        first_fetches = {role.partition.topic_partition for role in ready if not role.has_fetched}
        return FetchRound(number, leader, [role.ask(number) for role in ready], first_fetches)

    def fetch_response_received(
        self, leader: int, request_id: int, results: Sequence[FetchedPartition], now_ms: int, out: list[Effect]
    ) -> list[Partition]:
        """Apply the response to a FetchRound; returns the partitions that took theirs."""
        received = {result.topic_partition: result for result in results}
        took: list[Partition] = []
        for role in self._take_back(leader, request_id, received):
            result = received.get(role.partition.topic_partition)
            try:
                if result is None:
                    role.nothing_new(request_id)
                elif role.fetch_response_received(request_id, result, now_ms, out):
                    if result.records:
                        self._by_leader[leader].move_to_the_end(role.partition)
                    took.append(role.partition)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                out.append(FailReplica(role.partition.topic_partition, problem))
        return took

    def response_begins(self, leader: int, request_id: int, named: Collection[TopicPartition]) -> None:
        """Take a FetchRound back whose response is taken in parts; ``named``: all partitions that it names."""
        for role in self._take_back(leader, request_id, named):
            if role.partition.topic_partition not in named:
                role.nothing_new(request_id)

    def part_received(
        self, leader: int, request_id: int, results: Sequence[FetchedPartition], now_ms: int, out: list[Effect]
    ) -> list[Partition]:
        """Apply a part of the response that has begun; returns the partitions that took theirs."""
        took: list[Partition] = []
        for result in results:
            partition = self.followed(leader).get(result.topic_partition)
            role = None if partition is None else partition.follower_role
            if partition is None or role is None:
                continue  # it follows this leader no longer
            try:
                if role.fetch_response_received(request_id, result, now_ms, out):
                    if result.records:
                        self._by_leader[leader].move_to_the_end(partition)
                    took.append(partition)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                out.append(FailReplica(result.topic_partition, problem))
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

    def _take_back(
        self, leader: int, request_id: int, named: Collection[TopicPartition] | None = None
    ) -> list[Follower]:
        """Take back a round; return its partitions that still follow this leader, none if it is not in flight.

        Args:
            leader: to which it was sent.
            request_id: its number.
            named: the partitions that matter of a round for all standing fetches; None: all.
        """
        chosen = self._in_flight.pop(request_id, None)
        rounds = self._by_leader.get(leader)
        if chosen is None or rounds is None:
            return []
        if rounds.in_flight == request_id:
            return rounds.take_back(named)
        found = (rounds.followed.get(wanted.topic_partition) for wanted in chosen.partitions)
        return [at.follower_role for at in found if at is not None and at.follower_role is not None]
