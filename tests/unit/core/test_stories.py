"""Why the truncation rules are as they are: five stories, each under the rule that fails and the rules that cure it.

KIP-101, KIP-279, KIP-320 (`replica.truncation.rule`). S1 loses an acknowledged record by a change of leader, S2 by a
restart, S3 lets two logs differ below the high watermark (all three: truncation to the high watermark); S4 is the
fast fail-over of KIP-279, S5 the follower of KAFKA-6880 that missed an election. After each step the log end offset
and high watermark of the replicas are stated, and the ISR, leader epoch and epoch caches if they change.

Nothing moves by itself: a follower is "held" if no test makes it fetch, and "partitioned" if its control requests
wait. Records are written ``value@epoch``.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import CoreSettings, TopicRules

NONE = ErrorCode.NONE
NO_LEADER = -1
HIGH_WATERMARK, KIP_101, KIP_279, KIP_320 = "high-watermark", "kip-101", "kip-279", "kip-320"
SINCE_101 = (KIP_101, KIP_279, KIP_320)


def story(rule: str, assignment: tuple[int, ...], *, unclean: bool = False) -> Cluster:
    """Brokers 0 to 3 under a rule; no replica leaves the ISR for being slow."""
    settings = CoreSettings(truncation_rule=rule, replica_lag_time_max_ms=600_000)
    rules = TopicRules(unclean_leader_election=unclean)
    cluster = Cluster((0, 1, 2, 3), assignment=assignment, rules=rules, settings=settings)
    cluster.settle()
    return cluster


def die(cluster: Cluster, broker_id: int) -> None:
    """Killed, and ZooKeeper has noticed; who is to hear of it has not yet."""
    cluster.kill(broker_id)
    cluster.expire_session(broker_id)


def lead_and_isr(cluster: Cluster) -> tuple[int, tuple[int, ...], int]:
    """Leader, ISR and leader epoch in ZooKeeper."""
    return cluster.state[:3]


def wait_until_known(cluster: Cluster, follower: int) -> None:
    """A fetch that reaches the end, and its response when the wait is over, with the high watermark of then."""
    exchange = cluster.park(follower)
    cluster.advance(500)
    cluster.deliver_response(exchange)


# S1: data loss by a change of leader


def until_the_next_to_last_dies(rule: str) -> Cluster:
    """AR 1, 2, 0: m2 is acknowledged while all three have it; then 1 dies, and 2 before 0 has fetched again."""
    cluster = story(rule, (1, 2, 0))
    cluster.produce(1, "m1")
    cluster.settle()
    assert cluster.ends(1, 2, 0) == [(1, 1), (1, 1), (1, 1)]
    assert lead_and_isr(cluster) == (1, (1, 2, 0), 0)
    m2 = cluster.produce(1, "m2")
    assert cluster.ends(1, 2, 0) == [(2, 1), (1, 1), (1, 1)]
    cluster.fetch(0)
    cluster.fetch(0)
    assert cluster.ends(1, 2, 0) == [(2, 1), (1, 1), (2, 1)]
    cluster.fetch(2)
    assert m2.error is None
    wait_until_known(cluster, 2)
    assert cluster.ends(1, 2, 0) == [(2, 2), (2, 2), (2, 1)]
    assert m2.error is NONE
    die(cluster, 1)
    cluster.deliver()
    assert lead_and_isr(cluster) == (2, (2, 0), 1)
    return cluster


def test_s1_a_change_of_leader_loses_an_acknowledged_record_under_the_high_watermark_rule():
    cluster = until_the_next_to_last_dies(HIGH_WATERMARK)
    assert cluster.ends(2, 0) == [(2, 2), (1, 1)]  # 0 has truncated what it could not know to be committed
    die(cluster, 2)
    cluster.deliver()
    assert lead_and_isr(cluster) == (0, (0,), 2)
    assert cluster.ends(0) == [(1, 1)]
    assert cluster.produce(0, "m3").error is NONE
    cluster.start(1, 2)
    cluster.settle()
    for broker_id in (0, 1, 2):
        assert cluster.records(broker_id) == ["m1@0", "m3@2"]
    assert cluster.ends(0, 1, 2) == [(2, 2)] * 3
    assert lead_and_isr(cluster) == (0, (0, 1, 2), 2)


@pytest.mark.parametrize("rule", SINCE_101)
def test_s1_with_leader_epochs_the_record_stays(rule: str):
    cluster = until_the_next_to_last_dies(rule)
    assert cluster.ends(2, 0) == [(2, 2), (2, 1)]
    assert cluster.epochs(2) == ([(0, 0), (1, 2)] if rule == KIP_320 else [(0, 0)])
    die(cluster, 2)
    cluster.deliver()
    assert lead_and_isr(cluster) == (0, (0,), 2)
    assert cluster.ends(0) == [(2, 2)]
    assert cluster.epochs(0) == ([(0, 0), (2, 2)] if rule == KIP_320 else [(0, 0)])
    assert cluster.produce(0, "m3").error is NONE
    cluster.start(1, 2)
    cluster.settle()
    for broker_id in (0, 1, 2):
        assert cluster.records(broker_id) == ["m1@0", "m2@0", "m3@2"]
        assert cluster.epochs(broker_id) == [(0, 0), (2, 2)]
    assert cluster.ends(0, 1, 2) == [(3, 3)] * 3
    assert lead_and_isr(cluster) == (0, (0, 1, 2), 2)


# S2: data loss by a restart


def until_the_leader_dies(rule: str, *, unclean: bool) -> Cluster:
    """AR 1, 2: m2 is acknowledged; 2 is restarted before it learns that, and 1 dies before 2 has fetched again."""
    cluster = story(rule, (1, 2), unclean=unclean)
    cluster.produce(1, "m1")
    cluster.settle()
    cluster.brokers[2].write_checkpoint()
    m2 = cluster.produce(1, "m2")
    cluster.fetch(2)
    assert cluster.ends(1, 2) == [(2, 1), (2, 1)]
    cluster.park(2)  # the request arrives, its response never does
    assert cluster.ends(1, 2) == [(2, 2), (2, 1)]
    assert m2.error is NONE
    die(cluster, 2)
    cluster.deliver()
    assert lead_and_isr(cluster) == (1, (1,), 1)
    cluster.start(2)
    cluster.deliver()
    assert cluster.ends(1, 2) == [(2, 2), (1, 1) if rule == HIGH_WATERMARK else (2, 1)]
    die(cluster, 1)
    cluster.deliver()
    return cluster


@pytest.mark.parametrize("checkpoint", [0, 2])
def test_s2_a_restart_loses_an_acknowledged_record_under_the_high_watermark_rule(checkpoint: int):
    """With any checkpoint of 1: it truncates, or it is out of the new leader's range and truncates then."""
    cluster = until_the_leader_dies(HIGH_WATERMARK, unclean=True)
    assert lead_and_isr(cluster) == (2, (2,), 2)
    assert cluster.ends(2) == [(1, 1)]
    cluster.brokers[1].checkpoint[AT] = checkpoint
    cluster.start(1)
    cluster.settle()
    assert cluster.ends(1, 2) == [(1, 1)] * 2
    assert cluster.produce(2, "m3").error is None
    cluster.settle()
    assert cluster.records(1) == cluster.records(2) == ["m1@0", "m3@2"]
    assert lead_and_isr(cluster) == (2, (2, 1), 2)


@pytest.mark.parametrize("rule", SINCE_101)
def test_s2_with_leader_epochs_the_record_stays(rule: str):
    """The restarted replica keeps what it has; unclean or not, it is whole."""
    cluster = until_the_leader_dies(rule, unclean=True)
    assert lead_and_isr(cluster) == (2, (2,), 2)
    assert cluster.ends(2) == [(2, 2)]
    assert cluster.epochs(2) == ([(0, 0), (2, 2)] if rule == KIP_320 else [(0, 0)])
    cluster.brokers[1].checkpoint[AT] = 2
    cluster.start(1)
    cluster.settle()
    assert cluster.ends(1, 2) == [(2, 2)] * 2
    cluster.produce(2, "m3")
    cluster.settle()
    assert cluster.records(1) == cluster.records(2) == ["m1@0", "m2@0", "m3@2"]
    assert cluster.epochs(1) == cluster.epochs(2) == [(0, 0), (2, 2)]


@pytest.mark.parametrize("rule", [HIGH_WATERMARK, *SINCE_101])
def test_s2_without_unclean_elections_nothing_is_lost_under_any_rule(rule: str):
    """The partition waits for its last member (clean leader election)."""
    cluster = until_the_leader_dies(rule, unclean=False)
    assert lead_and_isr(cluster) == (NO_LEADER, (1,), 2)
    cluster.brokers[1].checkpoint[AT] = 1
    cluster.start(1)
    cluster.deliver()
    assert lead_and_isr(cluster) == (1, (1,), 3)
    assert cluster.ends(1) == [(2, 2)]
    cluster.produce(1, "m3")
    cluster.settle()
    assert cluster.records(1) == cluster.records(2) == ["m1@0", "m2@0", "m3@3"]
    assert lead_and_isr(cluster) == (1, (1, 2), 3)


# S3: divergence


def until_the_old_leader_returns(rule: str) -> Cluster:
    """AR 1, 2: 1 dies, 2 leads and loses m2, which was never on its disk, in a power loss; then it goes on with m3."""
    cluster = story(rule, (1, 2))
    cluster.produce(1, "m1")
    cluster.settle()
    m2 = cluster.produce(1, "m2")
    cluster.settle()
    assert m2.error is NONE
    assert cluster.ends(1, 2) == [(2, 2)] * 2
    cluster.brokers[1].write_checkpoint()
    die(cluster, 1)
    cluster.deliver()
    assert lead_and_isr(cluster) == (2, (2,), 1)
    die(cluster, 2)
    disk = cluster.brokers[2].disk[AT]
    disk.truncate_to(1)
    disk.epochs = [entry for entry in disk.epochs if entry.start_offset < 1]
    assert lead_and_isr(cluster) == (NO_LEADER, (2,), 2)
    cluster.start(2)
    cluster.deliver()
    assert lead_and_isr(cluster) == (2, (2,), 3)
    assert cluster.ends(2) == [(1, 1)]
    assert cluster.produce(2, "m3").error is NONE
    assert cluster.ends(2) == [(2, 2)]
    assert cluster.epochs(2) == [(0, 0), (3, 1)]
    cluster.start(1)
    return cluster


def test_s3_logs_differ_below_the_high_watermark_under_the_high_watermark_rule():
    cluster = until_the_old_leader_returns(HIGH_WATERMARK)
    cluster.settle()
    assert lead_and_isr(cluster) == (2, (2, 1), 3)
    assert cluster.ends(1, 2) == [(2, 2)] * 2
    assert cluster.records(1) == ["m1@0", "m2@0"]
    assert cluster.records(2) == ["m1@0", "m3@3"]


@pytest.mark.parametrize("rule", SINCE_101)
def test_s3_with_leader_epochs_the_logs_agree(rule: str):
    """m2 was acknowledged and is lost all the same: the power loss hit the only member of the ISR."""
    cluster = until_the_old_leader_returns(rule)
    cluster.deliver()
    assert cluster.ends(1) == [(2, 2)]
    cluster.fetch(1)
    assert cluster.ends(1) == [(1, 1)]
    cluster.settle()
    assert lead_and_isr(cluster) == (2, (2, 1), 3)
    assert cluster.ends(1, 2) == [(2, 2)] * 2
    assert cluster.records(1) == cluster.records(2) == ["m1@0", "m3@3"]
    assert cluster.epochs(1) == cluster.epochs(2) == [(0, 0), (3, 1)]


# S4: two elections in quick succession (KIP-279)


def with_leader_1_in_epoch_1(rule: str, assignment: tuple[int, ...]) -> Cluster:
    """The preferred leader 2 was stopped and started, so that 1 leads in epoch 1."""
    cluster = story(rule, assignment)
    assert cluster.shut_down_controlled(2)[0] is NONE
    cluster.deliver()
    die(cluster, 2)
    cluster.settle()
    cluster.start(2)
    cluster.settle()
    leader, isr, leader_epoch = lead_and_isr(cluster)
    assert (leader, set(isr), leader_epoch) == (1, set(assignment), 1)
    return cluster


def until_the_second_leader_returns(rule: str) -> Cluster:
    """AR 2, 1: 1 writes on in epoch 1, of whose end it has not heard; 2 writes in epoch 2, of which 1 never hears."""
    cluster = with_leader_1_in_epoch_1(rule, (2, 1))
    cluster.produce(1, "m1")
    cluster.settle()
    assert cluster.records(1) == cluster.records(2) == ["m1@1"]
    cluster.rebalance()
    cluster.deliver(0, 2, 3)  # 1 is partitioned
    assert lead_and_isr(cluster) == (2, (1, 2), 2)
    assert cluster.produce(1, "m2", acks=1).error is NONE
    assert cluster.produce(2, "m3", acks=1).error is NONE
    assert cluster.ends(1, 2) == [(2, 1), (2, 1)]
    die(cluster, 2)
    cluster.deliver()
    assert lead_and_isr(cluster) == (1, (1,), 3)
    assert cluster.ends(1) == [(2, 2)]
    cluster.produce(1, "m4", acks=1)
    assert cluster.records(1) == ["m1@1", "m2@1", "m4@3"]
    assert cluster.epochs(1) == [(1, 0), (3, 2)]
    cluster.start(2)
    cluster.deliver()
    assert cluster.ends(1, 2) == [(3, 3), (2, 0)]
    return cluster


def test_s4_after_two_quick_elections_logs_differ_under_kip_101():
    """2 asks where epoch 2 ends; 1 never had it, and responds with the start of its next epoch: 2, by its own count."""
    cluster = until_the_second_leader_returns(KIP_101)
    cluster.settle()
    assert cluster.records(1) == ["m1@1", "m2@1", "m4@3"]
    assert cluster.records(2) == ["m1@1", "m3@2", "m4@3"]
    assert lead_and_isr(cluster) == (1, (1, 2), 3)
    assert cluster.ends(1, 2) == [(3, 3)] * 2


@pytest.mark.parametrize("rule", [KIP_279, KIP_320])
def test_s4_the_response_that_names_its_epoch_cures_it(rule: str):
    """(1, 2) is the response to epoch 2: 2 knows that its own epoch 1 ends at 1, and truncates there."""
    cluster = until_the_second_leader_returns(rule)
    cluster.fetch(2)
    assert cluster.ends(2) == [(1, 0)]
    cluster.settle()
    assert cluster.records(1) == cluster.records(2) == ["m1@1", "m2@1", "m4@3"]
    assert cluster.epochs(1) == cluster.epochs(2) == [(1, 0), (3, 2)]
    assert lead_and_isr(cluster) == (1, (1, 2), 3)
    assert cluster.ends(1, 2) == [(3, 3)] * 2


# S5: a follower that missed an election (KAFKA-6880)


def until_the_zombie_fetches(rule: str) -> Cluster:
    """AR 2, 1, 3: 3 follows 1 in epoch 1 and hears no more; 1 loses its log to 2, and leads again in epoch 3."""
    cluster = with_leader_1_in_epoch_1(rule, (2, 1, 3))
    cluster.produce(1, "m0", acks=1)
    cluster.fetch(3)
    assert cluster.records(3) == ["m0@1"]
    cluster.rebalance()
    cluster.deliver(0, 1, 2)  # 3 is partitioned; its own fetches still go out
    leader, isr, leader_epoch = lead_and_isr(cluster)
    assert (leader, set(isr), leader_epoch) == (2, {1, 2, 3}, 2)
    cluster.fetch(1)
    assert cluster.ends(1, 2) == [(0, 0), (0, 0)]
    die(cluster, 2)
    cluster.deliver(0, 1)
    leader, isr, leader_epoch = lead_and_isr(cluster)
    assert (leader, set(isr), leader_epoch) == (1, {1, 3}, 3)
    cluster.produce(1, "m1", acks=1)
    cluster.produce(1, "m2", acks=1)
    assert cluster.ends(1, 3) == [(2, 0), (1, 0)]
    return cluster


def test_s5_a_follower_that_missed_an_election_copies_what_does_not_fit_under_kip_279():
    cluster = until_the_zombie_fetches(KIP_279)
    cluster.fetch(3)
    assert cluster.records(3) == ["m0@1", "m2@3"]
    assert cluster.ends(1, 3) == [(2, 1), (2, 0)]
    cluster.settle()  # heals 3, too: its latest epoch is the leader's, and ends at the right offset
    assert cluster.records(1) == ["m1@3", "m2@3"]
    assert cluster.records(3) == ["m0@1", "m2@3"]
    assert cluster.ends(1, 3) == [(2, 2)] * 2
    leader, isr, leader_epoch = lead_and_isr(cluster)
    assert (leader, set(isr), leader_epoch) == (1, {1, 3}, 3)


def test_s5_fenced_by_its_epoch_it_copies_nothing():
    cluster = until_the_zombie_fetches(KIP_320)
    response = cluster.fetch(3)
    assert response is not None
    assert response.error is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.records(3) == ["m0@1"]
    assert cluster.ends(1, 3) == [(2, 0), (1, 0)]
    cluster.deliver()
    cluster.fetch(3)
    assert cluster.ends(3) == [(0, 0)]
    cluster.settle()
    assert cluster.records(1) == cluster.records(3) == ["m1@3", "m2@3"]
    assert cluster.epochs(1) == cluster.epochs(3) == [(3, 0)]
    assert cluster.ends(1, 3) == [(2, 2)] * 2
