"""A regression guard: the cost of a partition without news in a round of replication, beside the least that names it.

A round asks for every partition that is followed, thousands perhaps: the work for each is the price of a broker
with many partitions. The bound is about twice the value measured when it was written.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster
from tests.costs import cost_ratio

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import RespondToFetch
from tidegauge_broker.replica.messages import FetchPartition, FetchRequest, FetchResult, FetchRound

pytestmark = pytest.mark.long

PARTITIONS = 1_000
WAIT_MS = 500


def test_a_round_in_which_nothing_happens_costs_little_for_each_partition() -> None:
    """Asked, read, parked, read again when its time is over, completed: nine steps where the plain way has two."""
    cluster = Cluster((1, 2), assignment=(1, 2), partitions=PARTITIONS)
    leader, follower = cluster.brokers[1].core, cluster.brokers[2].core
    now_ms = cluster.now_ms

    def ours() -> None:
        nonlocal now_ms
        chosen = follower.next_round(1, now_ms)
        assert isinstance(chosen, FetchRound)
        assert leader.fetch(FetchRequest(2, WAIT_MS, 1, 1 << 20, chosen.partitions), object(), now_ms) == []
        now_ms += WAIT_MS
        [response] = [effect for effect in leader.tick(now_ms) if isinstance(effect, RespondToFetch)]
        assert len(response.results) == PARTITIONS
        assert follower.fetch_response_received(1, chosen.request_id, [], now_ms) == []

    known = {TopicPartition(AT.topic, number): number for number in range(PARTITIONS)}

    def plain() -> None:
        asked = [FetchPartition(at, number, 1, 0, 0, 0) for at, number in known.items()]
        assert len([FetchResult(one.topic_partition, high_watermark=known[one.topic_partition]) for one in asked]) > 0

    assert cost_ratio(ours, plain) < 16
