"""Whom this broker follows, and the rounds of fetches under way: one for each leader, partitions in a fair order.

Rules (kafka-behaviour 3.8, AbstractFetcherThread):
    1. A round asks for every partition of a leader that is ready; it is outstanding until it is taken back.
    2. An answer counts only for the round whose number it carries; each number is used once (invariant I7).
    3. A partition that brought records goes to the end of the order, so that none starves behind a busy one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchPartition, FetchRound, Wait
from tidegauge_broker.replica.partition import Partition


class Rounds:
    """The partitions that follow, by leader, and the rounds that nobody has answered yet."""

    def __init__(self) -> None:
        self._followed: dict[int, dict[TopicPartition, Partition]] = {}
        self._outstanding: dict[int, FetchRound] = {}
        self._last_request_id = 0

    def __len__(self) -> int:
        return len(self._outstanding)

    def leaders(self) -> set[int]:
        """The leaders that are followed."""
        return set(self._followed)

    def followed(self, leader: int) -> Mapping[TopicPartition, Partition]:
        """The partitions that follow this leader, in the order of the next round."""
        return self._followed.get(leader, {})

    def begin(self, partition: Partition, leader: int) -> None:
        """The partition follows this leader from now on."""
        self._followed.setdefault(leader, {})[partition.topic_partition] = partition

    def end(self, partition: Partition, leader: int) -> bool:
        """It follows this leader no longer; says whether it did."""
        followed = self._followed.get(leader)
        if followed is None or followed.pop(partition.topic_partition, None) is None:
            return False
        if not followed:
            del self._followed[leader]
        return True

    def to_the_end(self, partition: Partition, leader: int) -> None:
        """Rule 3."""
        followed = self._followed[leader]
        followed[partition.topic_partition] = followed.pop(partition.topic_partition)

    def next(self, leader: int, now_ms: int) -> FetchRound | Wait:
        """What to ask this leader now; marks the round as the outstanding one of its partitions."""
        ready: list[FetchPartition] = []
        wake_ms: int | None = None
        self._last_request_id += 1
        request_id = self._last_request_id
        for partition in self.followed(leader).values():
            role = partition.follower_role
            assert role is not None
            if role.is_ready(now_ms):
                ready.append(role.ask(request_id))
            elif role.outstanding is None and not role.failed:
                wake_ms = role.delayed_until_ms if wake_ms is None else min(wake_ms, role.delayed_until_ms)
        if not ready:
            return Wait(wake_ms)
        chosen = self._outstanding[request_id] = FetchRound(request_id, leader, ready)
        return chosen

    def take_back(self, request_id: int) -> FetchRound | None:
        """The round with this number, which is outstanding no longer; None for one that is not."""
        return self._outstanding.pop(request_id, None)
