"""Where a follower truncates (AbstractFetcherThread.getOffsetTruncationState), as a table and by what it is for.

Mutations held: KIP-101 without KIP-279, the own or the leader's end left out of the minimum, truncation to the high
watermark.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.cluster_metadata import PartitionState
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import EpochEnd, EpochEntry
from tidegauge_broker.replica.rules import rule_named


@pytest.mark.parametrize(
    ("leader", "own", "log_end", "cut"),
    [
        ((-1, -1), [(0, 0), (2, 5)], 9, (3, True)),  # rule 1: undefined: the high watermark
        ((-1, 7), [(0, 0), (2, 5)], 9, (7, True)),  # rule 2: an old leader's response without epoch
        ((-1, 12), [(0, 0), (2, 5)], 9, (9, True)),
        ((4, 7), [(0, 0), (2, 5)], 9, (7, True)),  # rule 3: newer than all own epochs
        ((4, 12), [(0, 0), (2, 5)], 9, (9, True)),
        ((1, 8), [(0, 0), (2, 5), (3, 7)], 9, (5, False)),  # rule 4: never seen: the end of the largest below it
        ((2, 6), [(0, 0), (2, 5)], 9, (6, True)),  # rule 5: the leader's end is first
        ((2, 10), [(0, 0), (2, 5), (3, 7)], 12, (7, True)),  # rule 5: the own end is first
        ((2, 10), [(0, 0), (2, 5)], 9, (9, True)),  # rule 5: nothing to truncate
        ((0, 4), [(2, 5), (3, 7)], 9, (4, True)),  # older than the first own one counts as rule 5
    ],
)
def test_the_five_rules(leader: tuple[int, int], own: list[tuple[int, int]], log_end: int, cut: tuple[int, bool]):
    cache = EpochCache(EpochEntry(*entry) for entry in own)
    assert rule_named("kip-320").truncation_offset(EpochEnd(*leader), cache, log_end, 3) == cut


PRIVATE = st.lists(st.sampled_from("LF"), max_size=8)


@settings(max_examples=100, deadline=None)
@given(common=st.integers(0, 3), writers=PRIVATE, counts=st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_two_logs_that_parted_agree_after_at_most_one_round_for_each_own_epoch(
    common: int, writers: list[str], counts: list[int]
):
    """Each epoch after the common ones was written by one of the two alone; the leader's log wins, and no common
    record is lost.
    """
    shared = [(0, f"common {i}") for i in range(common)]
    logs = {"L": list(shared), "F": list(shared)}
    for epoch, (writer, count) in enumerate(zip(writers, counts, strict=False), start=1):
        logs[writer] += [(epoch, f"{writer} {epoch} {i}") for i in range(count)]
    cluster = Cluster((1, 2), assignment=(1, 2))
    cluster.kill(1, 2)
    state = PartitionState(AT, cluster.topic_id, 1, 1, 9, (1, 2), 1, (1, 2))
    for broker_id, log in ((1, logs["L"]), (2, logs["F"])):
        broker = cluster.brokers[broker_id]
        broker.fill(AT, *log)
        broker.checkpoint = {}
        broker.start(broker.broker_epoch)
        broker.metadata.live = frozenset({1, 2})
        cluster.hand_over(broker_id, cluster.request_of(state))
    rounds = 0
    while (response := cluster.fetch(2)).diverging is not None:
        rounds += 1
        assert cluster.ends(2)[0][0] >= common
        assert rounds <= len({epoch for epoch, _ in logs["F"]})
    cluster.fetch(2)
    assert response.error.name == "NONE"
    assert cluster.content(2) == cluster.content(1)
    assert cluster.epochs(2) == [entry for entry in cluster.epochs(1) if entry[0] != 9]
