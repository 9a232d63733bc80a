"""Worked timelines of acks=all, a stall, a restart, elections and KIP-279, step by step.

Each step asserts log end offset (LEO) and high watermark (HW) of the replicas, and, if they change, the ISR, the leader
epoch, the partition epoch and the epoch caches. Controller decisions are the real ones (PartitionStateMachine).
"""

from __future__ import annotations

import pytest
from core_harness import AT, FETCH_WAIT_MS, Cluster
from memory_broker import make_batch

from tidegauge.cluster_metadata import PartitionState
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import CoreSettings, OffsetLookup, TopicRules

NONE = ErrorCode.NONE


def ten_records(**arguments: object) -> Cluster:
    """Three replicas in the ISR; the log ends at 10, all of it committed and known to be so."""
    cluster = Cluster(**arguments)
    cluster.settle()
    cluster.produce(1, *"abcdefghij")
    cluster.settle()
    assert cluster.ends(1, 2, 3) == [(10, 10)] * 3
    return cluster


def test_acks_all_on_an_idle_partition():
    cluster = ten_records()
    # t0: both fetches are parked at 10, and a consumer waits too.
    two, three = cluster.park(2), cluster.park(3)
    consumer = cluster.consume(1, 10, wait_ms=1000)
    # t1: the append wakes the followers, not the consumer; HW stays, and the responses carry HW 10.
    produce = cluster.produce(1, "k")
    assert cluster.ends(1) == [(11, 10)]
    assert (two.is_completed, three.is_completed) == (True, True)
    assert (two.response.high_watermark, len(two.response.records)) == (10, len(make_batch("k")))
    assert (produce.is_completed, consumer.is_completed) == (False, False)
    # t2: follower 2 appends, HW min(10, 11) = 10; its next fetch is parked, HW still waits for 3.
    cluster.deliver_response(two)
    assert cluster.ends(2) == [(11, 10)]
    two = cluster.park(2)
    assert cluster.ends(1) == [(11, 10)]
    assert (two.is_completed, produce.is_completed) == (False, False)
    # t3: with follower 3 likewise HW is 11: producer and consumer have responses, parked follower fetches are not.
    cluster.deliver_response(three)
    three = cluster.park(3)
    assert cluster.ends(1, 2, 3) == [(11, 11), (11, 10), (11, 10)]
    assert (produce.error, produce.result.base_offset) == (NONE, 10)
    assert consumer.result.high_watermark == 11
    assert consumer.result.records != b""
    assert (two.is_completed, three.is_completed) == (False, False)
    # t4: they learn HW 11 when their wait is over, with an empty response.
    cluster.advance(FETCH_WAIT_MS)
    assert (two.response.high_watermark, two.response.records) == (11, b"")
    cluster.deliver_response(two)
    cluster.deliver_response(three)
    assert cluster.ends(1, 2, 3) == [(11, 11)] * 3
    assert cluster.state == (1, (1, 2, 3), 0, 0)


def test_a_follower_stalls_under_load():
    cluster = ten_records(rules=TopicRules(min_insync_replicas=2))
    cluster.advance(0)  # the expiry task runs now, and then every 15 s
    # T: follower 3 stops. 2 goes on; HW stays at LEO(3).
    waiting = cluster.produce(1, "a", timeout_ms=120_000)
    for elapsed in (0, 15_000, 30_000):
        cluster.produce(1, "b", acks=1)
        cluster.fetch(2)
        cluster.fetch(2)
        assert cluster.partition(1).high_watermark == 10
        assert cluster.brokers[1].proposals == [], elapsed
        cluster.advance(15_000)
    # T + 45 s: PendingShrink, 3 still counts.
    assert [proposal.new_isr for proposal in cluster.brokers[1].proposals] == [(1, 2)]
    cluster.fetch(2)
    assert cluster.isr(1) == ((1, 2, 3), (1, 2, 3))
    assert cluster.ends(1) == [(14, 10)]
    assert not waiting.is_completed
    # The controller's verdict: HW jumps to min(LEO(1), LEO(2)), parked requests complete.
    cluster.alter_partition(1)
    assert cluster.isr(1) == ((1, 2), (1, 2))
    assert cluster.ends(1) == [(14, 14)]
    assert (waiting.error, waiting.result.base_offset) == (NONE, 10)
    assert cluster.state == (1, (1, 2), 0, 1)
    # 3 returns: at LEO(3) >= HW it is proposed, and from then on HW waits for it, though there is no verdict yet.
    cluster.fetch(3)
    assert cluster.brokers[1].proposals == []
    exchange = cluster.park(3)
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))
    cluster.produce(1, "c", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert cluster.ends(1, 2) == [(15, 14), (15, 14)]
    cluster.alter_partition(1)
    assert cluster.state == (1, (1, 2, 3), 0, 2)
    assert cluster.ends(1) == [(15, 14)]
    cluster.deliver_response(exchange)
    cluster.fetch(3)
    assert cluster.ends(1, 3) == [(15, 15), (15, 14)]


def test_below_min_insync_replicas_the_mark_does_not_move_and_the_producer_times_out():
    """Since 3.7 error 7 and not 20: HW is frozen before it could show that the ISR is too small."""
    cluster = ten_records(rules=TopicRules(min_insync_replicas=3))
    waiting = cluster.produce(1, "a", timeout_ms=60_000)
    for _ in range(4):
        cluster.fetch(2)
        cluster.advance(15_000)
        if cluster.brokers[1].proposals:
            cluster.alter_partition(1)
    assert cluster.isr(1) == ((1, 2), (1, 2))
    assert cluster.ends(1) == [(11, 10)]
    assert waiting.error is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("kafkas_rule", [False, True])
def test_a_follower_is_killed_and_comes_back(kafkas_rule: bool):
    """With Kafka's rule a re-elected leader keeps its followers' ends, so HW moves at the LeaderAndIsr itself; by
    default only a fetch of the new epoch counts (the deliberate difference M6 of docs/results/rules-taken-away.md).
    """
    cluster = ten_records(settings=CoreSettings(reelected_leader_keeps_follower_state=kafkas_rule))
    # 0 s: kill -9. Nothing happens in ZooKeeper; acks=all stalls.
    cluster.kill(3)
    waiting = cluster.produce(1, "a", timeout_ms=60_000)
    cluster.fetch(2)
    parked = cluster.park(2)
    cluster.advance(400)
    assert cluster.ends(1, 2) == [(11, 10), (11, 10)]
    assert cluster.state == (1, (1, 2, 3), 0, 0)
    # Session expiry: ISR {1, 2}, leader epoch e+1, partition epoch +1.
    cluster.expire_session(3)
    assert cluster.state == (1, (1, 2), 1, 1)
    # The leader hears it first: it notes (1, 11). A fetch of the old epoch is fenced.
    cluster.deliver(1)
    assert cluster.epochs(1) == [(0, 0), (1, 11)]
    assert cluster.isr(1) == ((1, 2), (1, 2))
    assert cluster.ends(1) == [(11, 11 if kafkas_rule else 10)]
    assert waiting.is_completed == kafkas_rule
    cluster.advance(100)
    assert parked.response.error is ErrorCode.FENCED_LEADER_EPOCH
    # 2 follows in the new epoch; the late response to its fetch of the old one changes nothing.
    cluster.deliver(2)
    cluster.deliver_response(parked)
    cluster.fetch(2)
    assert cluster.ends(1) == [(11, 11)]
    assert waiting.error is NONE
    cluster.fetch(2)
    assert cluster.ends(2) == [(11, 11)]
    # 3 is back: the same e+1; it fetches from its own end and rejoins without a new epoch.
    cluster.start(3)
    assert cluster.state == (1, (1, 2), 1, 1)
    cluster.deliver()
    assert cluster.partition(3).leader_epoch == 1
    cluster.settle()
    assert cluster.state == (1, (1, 2, 3), 1, 2)
    assert cluster.ends(1, 2, 3) == [(11, 11)] * 3
    assert cluster.epochs(3) == [(0, 0)]  # epoch 1 has no record yet
    cluster.produce(1, "b")
    cluster.settle()
    assert cluster.epochs(1) == cluster.epochs(2) == cluster.epochs(3) == [(0, 0), (1, 11)]


def test_the_other_order_a_follower_that_is_ahead_waits():
    """If the follower hears of e+1 before the leader: UNKNOWN_LEADER_EPOCH, and a pause of replica.fetch.backoff.ms."""
    cluster = ten_records()
    cluster.kill(3)
    cluster.expire_session(3)
    cluster.deliver(2)
    response = cluster.fetch(2)
    assert response is not None
    assert response.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert cluster.ask(2) is None
    cluster.deliver(1)
    cluster.advance(999)
    assert cluster.ask(2) is None
    cluster.advance(1)
    assert cluster.fetch(2).error is NONE


def leader_killed(*, three_is_longer: bool) -> Cluster:
    """Play up to the election of 2 in e+1. Leader 1 had 13 records; who follows has 11 or 12, HW is 10 there."""
    cluster = ten_records()
    cluster.produce(1, "k", acks=1)
    cluster.fetch(2)
    cluster.fetch(3)
    cluster.produce(1, "l", acks=1)
    if three_is_longer:
        cluster.fetch(3)
    cluster.produce(1, "m", acks=1)
    assert cluster.ends(1, 2, 3)[0][0] == 13
    cluster.kill(1)
    assert cluster.state == (1, (1, 2, 3), 0, 0)
    cluster.expire_session(1)
    assert cluster.state == (2, (2, 3), 1, 1)
    return cluster


def test_the_leader_is_killed():
    cluster = leader_killed(three_is_longer=False)
    assert cluster.ends(2, 3) == [(11, 10), (11, 10)]
    # 2 notes its epoch, HW as it was: LEO(3) is unknown.
    cluster.deliver()
    assert cluster.epochs(2) == [(0, 0), (1, 11)]
    assert cluster.ends(2) == [(11, 10)]
    assert cluster.isr(2) == ((2, 3), (2, 3))
    # Latest offset: not before HW reaches the epoch's start.
    assert cluster.brokers[2].core.list_offset(OffsetLookup(AT, -1)).error is ErrorCode.OFFSET_NOT_AVAILABLE
    # 3 fetches at 11 with epoch 0: no divergence; HW moves.
    response = cluster.fetch(3)
    assert (response.diverging, response.high_watermark) == (None, 10)
    assert cluster.ends(2, 3) == [(11, 11), (11, 10)]
    assert cluster.brokers[2].core.list_offset(OffsetLookup(AT, -1)).offset == 11
    # The new leader goes on in its epoch.
    cluster.produce(2, "x", acks=1)
    cluster.settle()
    assert cluster.ends(2, 3) == [(12, 12)] * 2
    assert cluster.epochs(3) == [(0, 0), (1, 11)]
    # 1 is back as a follower in e+1: two records of epoch 0 beyond 11 go on its first fetch.
    cluster.start(1)
    cluster.deliver()
    assert cluster.ends(1) == [(13, 0)]  # no checkpoint was written
    response = cluster.fetch(1)
    assert response.diverging == (0, 11)
    assert cluster.ends(1) == [(11, 0)]
    cluster.settle()
    assert cluster.content(1) == cluster.content(2) == cluster.content(3)
    assert cluster.state == (2, (2, 3, 1), 1, 2)
    # Preferred election: leadership back to 1, e+2, ISR order unchanged.
    cluster.rebalance()
    assert cluster.state == (1, (2, 3, 1), 2, 3)
    cluster.settle()
    assert cluster.ends(1, 2, 3) == [(12, 12)] * 3
    assert cluster.epochs(1) == [(0, 0), (1, 11), (2, 12)]


def test_a_follower_longer_than_the_new_leader_truncates():
    cluster = leader_killed(three_is_longer=True)
    cluster.deliver()
    assert cluster.ends(2, 3) == [(11, 10), (12, 10)]
    response = cluster.fetch(3)
    assert response.diverging == (0, 11)
    assert cluster.ends(2, 3) == [(11, 10), (11, 10)]
    # The diverging response reported nothing to the leader: HW waits for the next fetch.
    cluster.fetch(3)
    assert cluster.ends(2) == [(11, 11)]
    assert cluster.content(2) == cluster.content(3)


def test_the_death_of_controller_and_leader_costs_two_epochs():
    """ReplicaStateMachine: the new controller takes the dead leader out of the ISR (leader -1) before it elects."""
    cluster = ten_records()
    cluster.kill(1)
    cluster.zookeeper.unregister_broker(1)
    cluster.fail_over()
    assert cluster.state == (2, (2, 3), 2, 2)
    cluster.deliver()
    assert cluster.epochs(2) == [(0, 0), (2, 10)]
    cluster.settle()
    assert cluster.ends(2, 3) == [(10, 10)] * 2


def all_dead_in_sequence(*, unclean: bool) -> Cluster:
    """Play up to the death of 3, which has a record more than 2, which has one more than 1."""
    cluster = ten_records(rules=TopicRules(unclean_leader_election=unclean))
    cluster.kill(1)
    cluster.expire_session(1)
    assert cluster.state == (2, (2, 3), 1, 1)
    cluster.settle()
    on_two = cluster.produce(2, "two")
    cluster.settle()
    assert on_two.error is NONE
    cluster.kill(2)
    cluster.expire_session(2)
    assert cluster.state == (3, (3,), 2, 2)
    cluster.settle()
    assert cluster.produce(3, "three").error is NONE
    assert cluster.ends(3) == [(12, 12)]
    cluster.brokers[3].write_checkpoint()
    cluster.kill(3)
    cluster.expire_session(3)
    assert cluster.state == (-1, (3,), 3, 3)
    return cluster


def test_all_die_and_only_the_last_one_may_lead():
    cluster = all_dead_in_sequence(unclean=False)
    # 1 and 2 return: they are not in the ISR, the partition stays offline.
    cluster.start(1, 2)
    cluster.deliver()
    assert cluster.state == (-1, (3,), 3, 3)
    assert cluster.partition(1).leader_role is None
    assert cluster.produce(1, "x").error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # 3 returns and leads, e+4; then the others rejoin by AlterPartition.
    cluster.start(3)
    assert cluster.state == (3, (3,), 4, 4)
    cluster.deliver()
    assert cluster.ends(3) == [(12, 12)]
    assert cluster.epochs(3) == [(0, 0), (1, 10), (2, 11), (4, 12)]
    cluster.settle()
    leader, isr, leader_epoch, partition_epoch = cluster.state
    assert (leader, sorted(isr), leader_epoch, partition_epoch) == (3, [1, 2, 3], 4, 6)
    assert cluster.ends(1, 2, 3) == [(12, 12)] * 3
    assert cluster.content(1) == cluster.content(2) == cluster.content(3)


def test_unclean_whoever_returns_first_leads_and_acknowledged_records_are_lost():
    cluster = all_dead_in_sequence(unclean=True)
    cluster.start(1)
    assert cluster.state == (1, (1,), 4, 4)
    assert cluster.zookeeper.state(AT).recovering
    cluster.deliver()
    assert cluster.epochs(1) == [(0, 0), (4, 10)]
    assert cluster.ends(1) == [(10, 10)]
    # 3 returns and takes over 1's history; its high watermark goes down.
    cluster.start(3)
    cluster.deliver()
    assert cluster.ends(3) == [(12, 12)]
    response = cluster.fetch(3)
    assert response.diverging == (0, 10)
    assert cluster.ends(3) == [(10, 10)]
    cluster.settle()
    assert cluster.content(3) == cluster.content(1)
    assert cluster.state == (1, (1, 3), 4, 5)
    assert not cluster.zookeeper.state(AT).recovering


def test_two_followers_dead_below_min_insync_replicas():
    cluster = ten_records(rules=TopicRules(min_insync_replicas=2))
    cluster.kill(2, 3)
    cluster.expire_session(2)
    cluster.expire_session(3)
    cluster.deliver()
    assert cluster.state == (1, (1,), 2, 2)
    # acks=all is refused at once, and nothing is appended.
    refused = cluster.produce(1, "a")
    assert (refused.error, refused.result.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert cluster.ends(1) == [(10, 10)]
    # acks=1 is appended and acknowledged, but HW stays: consumers do not see it.
    accepted = cluster.produce(1, "b", acks=1)
    assert (accepted.error, accepted.result.base_offset) == (NONE, 10)
    assert cluster.ends(1) == [(11, 10)]
    seen = cluster.consume(1, 10).result
    assert (seen.error, seen.records) == (NONE, b"")
    # With a second member of the ISR the record becomes visible.
    cluster.start(2)
    cluster.settle()
    assert cluster.state == (1, (1, 2), 2, 3)
    assert cluster.ends(1, 2) == [(11, 11)] * 2
    assert cluster.consume(1, 10).result.records != b""


def test_the_example_of_kip_279():
    """Leader (0, 0) (1, 5) (4, 8), end 10; follower (0, 0) (2, 5) (3, 7), end 9: it truncates to 5, not to 8."""
    cluster = Cluster((1, 2), assignment=(1, 2))
    cluster.kill(1, 2)
    common = [(0, f"common {i}") for i in range(5)]
    cluster.brokers[1].fill(AT, *common, *((1, f"one {i}") for i in range(5, 8)), (4, "four 8"), (4, "four 9"))
    cluster.brokers[2].fill(AT, *common, (2, "two 5"), (2, "two 6"), (3, "three 7"), (3, "three 8"))
    for broker_id in (1, 2):
        broker = cluster.brokers[broker_id]
        broker.start(broker.broker_epoch)
        broker.metadata.live = frozenset({1, 2})
        state = PartitionState(AT, cluster.topic_id, 1, 1, 4, (1, 2), 1, (1, 2))
        cluster.hand_over(broker_id, cluster.request_of(state))
    assert cluster.epochs(1) == [(0, 0), (1, 5), (4, 8)]
    assert cluster.epochs(2) == [(0, 0), (2, 5), (3, 7)]
    assert [end for end, _ in cluster.ends(1, 2)] == [10, 9]
    # Fetch(9, epoch 3): the largest epoch up to 3 is 1, ending at 8.
    exchange = cluster.ask(2)
    assert (exchange.round.partitions[0].fetch_offset, exchange.round.partitions[0].last_fetched_epoch) == (9, 3)
    cluster.arrive(exchange)
    assert exchange.response.diverging == (1, 8)
    # The follower never saw epoch 1; below it is epoch 0, which ends at 5.
    cluster.deliver_response(exchange)
    assert cluster.ends(2) == [(5, 5)]
    assert cluster.epochs(2) == [(0, 0)]
    # Fetch(5, epoch 0): no divergence, it copies from 5 on.
    exchange = cluster.ask(2)
    assert (exchange.round.partitions[0].fetch_offset, exchange.round.partitions[0].last_fetched_epoch) == (5, 0)
    cluster.arrive(exchange)
    assert exchange.response.diverging is None
    cluster.deliver_response(exchange)
    assert cluster.content(2) == cluster.content(1)
    assert cluster.epochs(2) == [(0, 0), (1, 5), (4, 8)]
