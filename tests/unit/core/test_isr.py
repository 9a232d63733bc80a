"""ISR: the caught-up clock, the maximal ISR, expansion, shrink, and the controller's verdicts.

Holds KIP-497 and Kafka's Partition (maybeExpandIsr, maybeShrinkIsr, submitAlterPartition): mutants M4, M7 and M9
die here, and so do a changed bound of the lag time and a rollback after an uncertain verdict.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster
from lone_broker import ME, OTHER, A, broker_of, role

from tidegauge.control import IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge.in_sync import is_caught_up
from tidegauge_broker.replica.delayed_fetch import DelayedFetch
from tidegauge_broker.replica.isr import CommittedIsr, PendingExpand, PendingShrink
from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_broker.replica.remote_replica import RemoteReplica
from tidegauge_broker.replica.roles import Role

SMALLER = IsrProposal(AT, "id", 0, (1, 2), 0)
LARGER = IsrProposal(AT, "id", 0, (1, 2, 3), 0)


# The states


def test_the_maximal_isr_is_the_larger_of_the_two_sets():
    assert CommittedIsr((1, 2)).maximal_isr == (1, 2)
    assert PendingExpand((1, 2), 3, LARGER).maximal_isr == (1, 2, 3)
    assert PendingShrink((1, 2, 3), SMALLER).maximal_isr == (1, 2, 3)


# The caught-up clock (Replica.isCaughtUp)


def test_a_fetch_at_the_leaders_end_is_caught_up_now():
    remote = RemoteReplica(2)
    remote.fetched(10, 0, 10, 1000)
    assert (remote.log_end_offset, remote.last_caught_up_time_ms) == (10, 1000)


def test_a_fetch_at_the_end_of_the_last_fetch_is_caught_up_then():
    """Under load a follower never reaches the moving end, yet it is in sync."""
    remote = RemoteReplica(2)
    remote.fetched(10, 0, 10, 1000)
    remote.fetched(10, 0, 15, 2000)
    assert remote.last_caught_up_time_ms == 1000
    remote.fetched(15, 0, 20, 3000)
    assert remote.last_caught_up_time_ms == 2000
    remote.fetched(19, 0, 25, 4000)  # 20 was the end at the last fetch
    assert remote.last_caught_up_time_ms == 2000


def test_a_fetch_sets_the_end_also_downwards():
    remote = RemoteReplica(2)
    remote.fetched(10, 0, 10, 1000)
    remote.fetched(4, 0, 10, 2000)
    assert remote.log_end_offset == 4
    assert remote.last_fetch_leader_log_end_offset == 10


def test_the_bound_is_inclusive_and_equality_escapes_it():
    """Replica.isCaughtUp: a silent follower of an idle partition stays in sync for ever."""
    remote = RemoteReplica(2)
    remote.fetched(10, 0, 10, 1000)
    assert is_caught_up(remote, 11, 31_000, 30_000)
    assert not is_caught_up(remote, 11, 31_001, 30_000)
    assert is_caught_up(remote, 10, 10**9, 30_000)


# Shrink (Partition.maybeShrinkIsr)


def test_every_straggler_leaves_in_one_change_after_the_lag_time():
    cluster = Cluster()
    cluster.settle()
    cluster.produce(1, "a", acks=1)
    cluster.advance(30_000)
    assert cluster.brokers[1].proposals == []
    cluster.advance(15_000)
    assert [proposal.new_isr for proposal in cluster.brokers[1].proposals] == [(1,)]
    assert cluster.isr(1) == ((1, 2, 3), (1, 2, 3))
    assert cluster.alter_partition(1).error is ErrorCode.NONE
    assert cluster.isr(1) == ((1,), (1,))
    assert cluster.state == (1, (1,), 0, 1)  # the leader epoch stays
    assert cluster.ends(1) == [(1, 1)]


def test_the_task_runs_every_half_lag_time():
    """A stuck follower leaves between 1.0 and 1.5 times the lag time, not at each tick."""
    cluster = Cluster()
    cluster.settle()
    cluster.advance(0)  # the task's first run; the next ones come 15 s apart
    cluster.produce(1, "a", acks=1)
    cluster.advance(29_999)  # a run: no replica lags yet
    cluster.advance(14_998)
    assert cluster.brokers[1].proposals == []  # they lag for 44 997 ms, but it is not time to look
    cluster.advance(2)
    assert len(cluster.brokers[1].proposals) == 1


def test_followers_that_have_all_stay_however_long_they_are_silent():
    cluster = Cluster()
    cluster.produce(1, "a")
    cluster.settle()
    cluster.kill(2, 3)
    for _ in range(10):
        cluster.advance(30_000)
    assert cluster.brokers[1].proposals == []


def test_a_follower_under_load_stays_in_the_isr():
    cluster = Cluster()
    cluster.settle()
    for _ in range(10):
        cluster.produce(1, "a", acks=1)
        for follower in (2, 3):
            exchange = cluster.park(follower)
            cluster.produce(1, "b", acks=1)  # the end has moved on before the response is there
            cluster.deliver_response(exchange)
        cluster.advance(15_000)
    assert cluster.brokers[1].proposals == []


def test_an_election_gives_isr_members_the_lag_time_again():
    """Partition.makeLeader: members count as caught up at the election; others do not, nor hold the mark back."""
    cluster = Cluster()
    cluster.settle()
    cluster.advance(31_000)
    cluster.impose(2, [2, 3])
    cluster.deliver()
    cluster.produce(2, "a", acks=1)
    remotes = cluster.partition(2).leader_role.remotes
    assert (remotes[3].last_caught_up_time_ms, remotes[1].last_caught_up_time_ms) == (cluster.now_ms, 0)
    cluster.advance(30_000)
    assert cluster.brokers[2].proposals == []
    cluster.advance(15_000)
    assert [proposal.new_isr for proposal in cluster.brokers[2].proposals] == [(2,)]


def test_no_second_change_while_one_is_in_flight():
    cluster = Cluster()
    cluster.settle()
    cluster.produce(1, "a", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    cluster.advance(31_000)
    cluster.produce(1, "b", acks=1)
    cluster.advance(31_000)
    assert [proposal.new_isr for proposal in cluster.brokers[1].proposals] == [(1, 2)]


def test_min_insync_replicas_is_no_lower_bound_for_the_isr():
    cluster = Cluster(rules=TopicRules(min_insync_replicas=3))
    cluster.settle()
    cluster.produce(1, "a", acks=1)
    cluster.advance(31_000)
    cluster.alter_partition(1)
    assert cluster.isr(1)[0] == (1,)


# Expansion (Partition.maybeExpandIsr)


def shrunk() -> Cluster:
    """ISR [1, 2] of [1, 2, 3]; the log ends at 3, committed."""
    cluster = Cluster()
    cluster.settle()
    cluster.produce(1, "a", "b", "c", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    cluster.advance(31_000)
    cluster.fetch(2)
    cluster.alter_partition(1)
    assert cluster.isr(1) == ((1, 2), (1, 2))
    assert cluster.ends(1) == [(3, 3)]
    return cluster


def test_joining_needs_the_high_watermark_not_the_end():
    cluster = shrunk()
    cluster.fetch(3)  # asks from 0: not there yet
    assert cluster.brokers[1].proposals == []
    cluster.produce(1, "d", acks=1)
    cluster.fetch(3)  # asks from 3 = high watermark, the end is 4
    assert [proposal.new_isr for proposal in cluster.brokers[1].proposals] == [(1, 2, 3)]


def test_from_the_proposal_on_the_high_watermark_waits_for_the_newcomer():
    """M9: the newcomer may be elected from now on, whatever the leader has heard."""
    cluster = shrunk()
    cluster.fetch(3)
    cluster.fetch(3)
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))
    cluster.advance(31_000)  # the newcomer is not caught up any more: only the maximal ISR holds the mark back
    cluster.fetch(2)
    cluster.produce(1, "d", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert cluster.ends(1) == [(4, 3)]
    proposal, verdict = cluster.decide_isr(1)
    assert cluster.state == (1, (1, 2, 3), 0, 2)
    cluster.tell_verdict(1, proposal, verdict)
    assert cluster.isr(1) == ((1, 2, 3), (1, 2, 3))


def test_the_high_watermark_waits_for_a_member_until_its_removal_is_decided():
    """M9: a pending shrink counts with the old ISR; the controller may still elect the one that is to leave."""
    cluster = Cluster()
    cluster.settle()
    produce = cluster.produce(1, "a", timeout_ms=100_000)
    cluster.advance(31_000)
    cluster.fetch(2)
    cluster.fetch(2)
    (proposal,) = cluster.brokers[1].proposals
    assert proposal.new_isr == (1,)
    assert cluster.isr(1) == ((1, 2, 3), (1, 2, 3))
    assert cluster.ends(1, 2) == [(1, 0), (1, 0)]
    assert not produce.is_completed
    cluster.alter_partition(1)
    assert cluster.isr(1) == ((1,), (1,))
    assert cluster.ends(1) == [(1, 1)]
    assert (produce.error, produce.result.base_offset) == (ErrorCode.NONE, 0)


def test_a_verdict_wakes_waiting_fetches_only_if_the_high_watermark_moves(monkeypatch):
    """A broker that comes back brings a verdict for each partition, and each would read every fetch again."""
    cluster = shrunk()
    waiting = cluster.park(2)
    consumer = cluster.consume(1, 3, wait_ms=30_000)
    cluster.fetch(3)
    cluster.fetch(3)
    tried: list[object] = []
    monkeypatch.setattr(DelayedFetch, "try_complete", lambda fetch, _out: tried.append(fetch.token))
    cluster.alter_partition(1)
    assert cluster.isr(1) == ((1, 2, 3), (1, 2, 3))
    assert (tried, waiting.is_completed, consumer.is_completed) == ([], False, False)


def test_a_verdict_that_moves_the_high_watermark_wakes_consumers():
    """The leader is alone in its ISR from then on, and what it has is committed."""
    cluster = Cluster()
    cluster.settle()
    consumer = cluster.consume(1, 0, wait_ms=100_000)
    cluster.produce(1, "a", acks=1)
    cluster.advance(31_000)
    assert not consumer.is_completed
    cluster.alter_partition(1)
    assert cluster.ends(1) == [(1, 1)]
    assert consumer.is_completed


def test_a_caught_up_replica_outside_the_isr_holds_the_high_watermark_back():
    """Partition.maybeIncrementLeaderHW: a rejoining follower can reach the mark of a fast leader that is alone."""
    cluster = shrunk()
    cluster.fetch(3)
    cluster.fetch(3)
    cluster.brokers[1].proposals.clear()  # the proposal is on its way for ever
    proposal = cluster.partition(1).leader_role.isr.proposal
    cluster.tell_verdict(1, proposal, IsrVerdict(AT, ErrorCode.INELIGIBLE_REPLICA))
    assert cluster.isr(1) == ((1, 2), (1, 2))
    cluster.produce(1, "d", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert cluster.ends(1) == [(4, 3)]
    cluster.advance(30_001)
    cluster.fetch(2)
    cluster.produce(1, "e", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert cluster.ends(1) == [(5, 5)]


def test_joining_needs_the_epochs_start():
    """M4 (KAFKA-7128): a new leader's high watermark lags; its end at election is the bound too."""
    cluster = Cluster()
    cluster.settle()
    cluster.produce(1, "a", "b", acks=1)
    cluster.fetch(2)  # 2 has both records, not the mark
    cluster.impose(2, [1, 2])
    cluster.deliver()
    assert cluster.ends(2) == [(2, 0)]  # 1 has not fetched in this epoch
    cluster.fetch(3)  # asks from 0 >= high watermark 0, but the epoch begins at 2
    assert cluster.brokers[2].proposals == []
    cluster.fetch(3)
    assert [proposal.new_isr for proposal in cluster.brokers[2].proposals] == [(1, 2, 3)]


def test_a_broker_that_is_not_alive_is_not_proposed():
    cluster = shrunk()
    cluster.fetch(3)
    cluster.brokers[1].metadata.live -= {3}
    cluster.fetch(3)
    assert cluster.brokers[1].proposals == []


def test_a_broker_without_a_replica_may_not_fetch():
    """UNKNOWN_LEADER_EPOCH where the request carries an epoch."""
    cluster = Cluster((1, 2, 3, 4))
    exchange = cluster.ask(2)
    assert exchange is not None
    exchange.follower = cluster.brokers[4].core
    cluster.arrive(exchange)
    assert exchange.response.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    exchange.round.partitions[0].current_leader_epoch = None
    exchange.box.clear()
    cluster.arrive(exchange)
    assert exchange.response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    hint = exchange.response.leader_hint
    assert hint is not None, "KafkaApis names the leader with this error, whoever is asked (KIP-951)"
    assert hint.leader == 1


# Verdicts (Partition.submitAlterPartition)


def pending() -> tuple[Cluster, IsrProposal]:
    cluster = shrunk()
    cluster.fetch(3)
    cluster.fetch(3)
    return cluster, cluster.brokers[1].proposals.pop()


def test_a_verdict_that_leaves_the_leader_out_is_ignored():
    """I4 would not hold; no controller decides it. The leader waits for the controller's next state."""
    cluster, proposal = pending()
    verdict = IsrVerdict(AT, ErrorCode.NONE, 1, cluster.partition(1).leader_epoch, (2, 3), 9)
    cluster.tell_verdict(1, proposal, verdict)
    assert cluster.partition(1).role is Role.LEADER
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))
    assert cluster.partition(1).partition_epoch < 9


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_refusal_that_is_certain_rolls_back(error: ErrorCode):
    cluster, proposal = pending()
    cluster.tell_verdict(1, proposal, IsrVerdict(AT, error))
    assert cluster.isr(1) == ((1, 2), (1, 2))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_after_other_refusals_it_stays_pending_until_the_controller_decides(error: ErrorCode):
    cluster, proposal = pending()
    cluster.tell_verdict(1, proposal, IsrVerdict(AT, error))
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))
    assert cluster.brokers[1].proposals == []
    cluster.impose(1, [1, 2])
    cluster.deliver()
    assert cluster.isr(1) == ((1, 2), (1, 2))


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.STALE_BROKER_EPOCH]
)
def test_any_other_error_proposes_the_same_again(error: ErrorCode):
    cluster, proposal = pending()
    cluster.tell_verdict(1, proposal, IsrVerdict(AT, error))
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))
    (again,) = cluster.brokers[1].proposals
    assert again is proposal


def test_a_verdict_on_what_is_not_pending_any_more_is_ignored():
    """A LeaderAndIsr replaced it meanwhile: neither success nor refusal counts."""
    for error in (ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA):
        cluster, proposal = pending()
        cluster.impose(1, [1, 2])
        cluster.deliver()
        old = IsrVerdict(AT, error, 1, 1, (1, 2, 3), 9)
        assert cluster.tell_verdict(1, proposal, old) == []
        assert cluster.isr(1) == ((1, 2), (1, 2))


def test_a_late_refusal_does_not_roll_back_the_next_proposal():
    """M9: the new proposal may be granted still; rolled back, the mark would no longer wait for the newcomer."""
    cluster, proposal = pending()
    cluster.impose(1, [1, 2])
    cluster.deliver()
    cluster.fetch(3)
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))
    assert cluster.brokers[1].proposals[0] is not proposal
    cluster.tell_verdict(1, proposal, IsrVerdict(AT, ErrorCode.INELIGIBLE_REPLICA))
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 5), (0, 0)])
def test_a_success_of_another_epoch_is_ignored(leader_epoch: int, partition_epoch: int):
    cluster, proposal = pending()
    cluster.tell_verdict(1, proposal, IsrVerdict(AT, ErrorCode.NONE, 1, leader_epoch, (1, 2, 3), partition_epoch))
    assert cluster.isr(1) == ((1, 2), (1, 2, 3))


def test_a_success_of_the_same_partition_epoch_counts():
    """The controller had written it already, and accepts a repeated proposal."""
    cluster, proposal = pending()
    epoch = cluster.partition(1).partition_epoch
    cluster.tell_verdict(1, proposal, IsrVerdict(AT, ErrorCode.NONE, 1, 0, (1, 2, 3), epoch))
    assert cluster.isr(1) == ((1, 2, 3), (1, 2, 3))


def test_the_lag_time_is_a_setting():
    cluster = Cluster(settings=CoreSettings(replica_lag_time_max_ms=2000))
    cluster.settle()
    cluster.produce(1, "a", acks=1)
    cluster.advance(2000)
    assert cluster.brokers[1].proposals == []
    cluster.advance(1000)
    assert len(cluster.brokers[1].proposals) == 1


# Reassignments


def test_a_leader_knows_from_its_latest_role_which_replicas_a_reassignment_adds():
    """Partition.isReassigning: LeaderAndIsr names them, UpdateMetadata over Kafka's protocol does not."""
    broker = broker_of(A)
    role(broker, ME, 1, adding=[3])
    partition = broker.core.partition(A)
    assert partition is not None
    assert partition.is_reassigning
    assert partition.adding_replicas == (3,)
    role(broker, ME, 2, isr=(ME, OTHER))
    assert not partition.is_reassigning
    assert partition.adding_replicas == ()
