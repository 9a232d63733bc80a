"""The details of Kafka's replication most easily got wrong, each as far as the core has a part in it.

| trap | mutation that its test kills |
|---|---|
| 1 | the high watermark of a response taken after the fetch's own effect; a moved mark waking parked followers |
| 2 | only the ISR counted, the committed instead of the maximal ISR, or the mark moving below min.insync.replicas |
| 3 | min.insync.replicas not capped by the replication factor |
| 4 | joining at the high watermark alone; leaving without the equality escape |
| 5 | a LeaderAndIsr of an equal epoch applied; AlterPartition as a new epoch |
| 6 | a leader that notes its epoch only with its first record |
| 7 | truncation to the high watermark; a follower's mark that never falls |
| 8 | one round of truncation only |
| 9 | an offset between high watermark and log end as an error; a follower that serves it |
| 10 | the last ISR member removed |
| also | a duplicate appended, or refused; a zombie's records kept; a late response taken |
"""

from __future__ import annotations

import pytest
from core_harness import AT, FETCH_WAIT_MS, Cluster
from memory_broker import START_MS

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import StopReplicaPartition, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import CoreSettings, EpochLookup, LeaderHint, OffsetLookup, TopicRules
from tidegauge_broker.replica.roles import Role

NONE = ErrorCode.NONE


def settled(*values: str, **arguments: object) -> Cluster:
    """A quiet cluster; the values are committed and everyone knows."""
    cluster = Cluster(**arguments)
    cluster.settle()
    for value in values:
        cluster.produce(1, value, acks=1)
    cluster.settle()
    return cluster


# 1: the high watermark is one round late


def test_trap_1_a_response_carries_the_high_watermark_from_before_the_fetch():
    cluster = settled(brokers=(1, 2), assignment=(1, 2))
    cluster.produce(1, "a")
    first = cluster.fetch(2)
    assert first.high_watermark == 0
    assert cluster.ends(1, 2) == [(1, 0), (1, 0)]
    second = cluster.fetch(2)  # proves that 2 has the record: the leader commits, the response does not say so
    assert second.high_watermark == 0
    assert cluster.ends(1, 2) == [(1, 1), (1, 0)]
    third = cluster.fetch(2)
    assert third.high_watermark == 1
    assert cluster.ends(1, 2) == [(1, 1), (1, 1)]


def test_trap_1_a_moved_high_watermark_wakes_no_follower_but_its_late_response_carries_it():
    cluster = settled()
    cluster.produce(1, "a")
    cluster.fetch(2)
    cluster.fetch(3)
    two = cluster.park(2)
    three = cluster.park(3)  # moves the mark
    assert cluster.ends(1) == [(1, 1)]
    assert (two.is_completed, three.is_completed) == (False, False)
    cluster.advance(FETCH_WAIT_MS - 1)
    assert (two.is_completed, three.is_completed) == (False, False)
    cluster.advance(1)
    assert (two.response.high_watermark, three.response.high_watermark) == (1, 1)


def test_trap_1_a_parked_fetch_counts_on_arrival_alone():
    """DelayedFetch: the follower's state is not updated again when the fetch completes."""
    cluster = settled("a")
    exchange = cluster.park(2)
    arrival = cluster.now_ms
    cluster.advance(400)
    cluster.produce(1, "b", acks=1)
    assert exchange.is_completed
    remote = cluster.partition(1).leader_role.remotes[2]
    assert (remote.last_fetch_time_ms, remote.last_caught_up_time_ms, remote.log_end_offset) == (arrival, arrival, 1)
    assert remote.last_fetch_leader_log_end_offset == 1


# 2: whom the high watermark waits for


def test_trap_2_a_live_caught_up_replica_outside_the_isr_counts_and_a_dead_one_does_not():
    cluster = settled("a")
    cluster.impose(1, [1, 2])
    cluster.deliver()
    cluster.fetch(2)
    cluster.park(3)
    cluster.brokers[1].proposals.clear()
    proposal = cluster.partition(1).leader_role.isr.proposal
    cluster.term.context.shutting_down.add(3)  # the controller refuses 3
    cluster.brokers[1].proposals.append(proposal)
    assert cluster.alter_partition(1).error is ErrorCode.INELIGIBLE_REPLICA
    cluster.produce(1, "b", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert cluster.ends(1) == [(2, 1)]  # 3 is caught up in time: the mark waits
    cluster.brokers[1].metadata.live -= {3}
    cluster.produce(1, "c", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert cluster.ends(1) == [(3, 3)]


def test_trap_2_below_min_insync_replicas_nothing_is_committed_not_even_for_acks_1():
    cluster = settled("a", brokers=(1, 2), assignment=(1, 2), rules=TopicRules(min_insync_replicas=2))
    cluster.impose(1, [1])
    cluster.deliver()
    assert cluster.produce(1, "b", acks=1).error is NONE
    assert cluster.ends(1) == [(2, 1)]
    assert cluster.produce(1, "c").error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_trap_2_an_unknown_end_of_a_member_holds_the_mark():
    """Partition.maybeIncrementLeaderHW: after an election the new leader waits for the first fetch of each member."""
    cluster = settled("a")
    cluster.produce(1, "b", acks=1)
    cluster.fetch(2)
    cluster.fetch(3)
    cluster.impose(2, [2, 3])
    cluster.deliver()
    assert cluster.ends(2) == [(2, 1)]
    cluster.produce(2, "c", acks=1)
    assert cluster.ends(2) == [(3, 1)]
    cluster.fetch(3)
    assert cluster.ends(2) == [(3, 2)]


# 3: min.insync.replicas is capped by the replication factor


def test_trap_3_one_replica_and_two_demanded_succeeds():
    cluster = Cluster((1,), assignment=(1,), rules=TopicRules(min_insync_replicas=2))
    produce = cluster.produce(1, "a")
    assert (produce.error, produce.result.base_offset) == (NONE, 0)
    assert cluster.ends(1) == [(1, 1)]


# 4: joining and leaving


def test_trap_4_joining_does_not_need_the_leaders_end_but_the_epochs_start():
    cluster = settled("a")
    cluster.produce(1, "b", "c", acks=1)
    cluster.fetch(2)
    cluster.impose(2, [1, 2])  # 2 leads from 3 on; its mark is 1
    cluster.deliver()
    assert cluster.ends(2, 3) == [(3, 1), (1, 1)]
    cluster.produce(2, "d", acks=1)
    cluster.fetch(3)  # from 1: at the mark, not at the epoch's start
    assert cluster.brokers[2].proposals == []
    assert cluster.ends(3) == [(4, 1)]
    cluster.produce(2, "e", acks=1)
    cluster.fetch(3)  # from 4: the end is 5
    assert [proposal.new_isr for proposal in cluster.brokers[2].proposals] == [(1, 2, 3)]


def test_trap_4_a_silent_follower_that_has_all_stays_and_one_that_lacks_a_record_goes():
    cluster = settled("a")
    cluster.advance(10**6)
    assert cluster.brokers[1].proposals == []
    cluster.produce(1, "b", acks=1)
    cluster.advance(15_000)
    assert [proposal.new_isr for proposal in cluster.brokers[1].proposals] == [(1,)]


# 5: epochs


def test_trap_5_a_leader_and_isr_of_an_equal_or_lower_epoch_is_stale():
    cluster = settled("a")
    cluster.impose(2, [2, 3])
    cluster.deliver()
    for broker_id in (1, 2, 3):
        for leader_epoch in (0, 1):
            state = PartitionState(AT, cluster.topic_id, 1, 3, leader_epoch, (3,), 9, (1, 2, 3))
            (response,) = cluster.hand_over(broker_id, cluster.request_of(state))
            assert (response.error, response.partitions) == (NONE, {AT: ErrorCode.STALE_CONTROLLER_EPOCH})
    assert [cluster.partition(broker_id).leader for broker_id in (1, 2, 3)] == [2, 2, 2]
    assert [cluster.partition(broker_id).leader_epoch for broker_id in (1, 2, 3)] == [1, 1, 1]


def test_trap_5_a_state_older_than_the_last_isr_change_is_left_alone():
    """A lower partition epoch is ignored without an error, even if its leader epoch is higher."""
    cluster = settled("a")
    cluster.produce(1, "b", acks=1)
    cluster.advance(31_000)
    cluster.alter_partition(1)
    assert (cluster.partition(1).leader_epoch, cluster.partition(1).partition_epoch) == (0, 1)
    for leader in (1, 2):
        state = PartitionState(AT, cluster.topic_id, 1, leader, 7, (1, 2, 3), 0, (1, 2, 3))
        (response,) = cluster.hand_over(1, cluster.request_of(state))
        assert (response.error, response.partitions) == (NONE, {AT: NONE})
    assert (cluster.partition(1).leader_epoch, cluster.isr(1)) == (0, ((1,), (1,)))


def test_trap_5_alter_partition_moves_the_partition_epoch_alone():
    cluster = settled("a")
    cluster.produce(1, "b", acks=1)
    cluster.advance(31_000)
    cluster.alter_partition(1)
    assert cluster.state == (1, (1,), 0, 1)
    assert (cluster.partition(1).leader_epoch, cluster.partition(1).partition_epoch) == (0, 1)
    assert cluster.fetch(2).error is NONE  # no other broker knows, no one is fenced


def test_trap_5_an_older_controller_is_fenced():
    """Each request type carries the controller's epoch; a newer one is remembered."""
    cluster = settled("a")
    stale = PartitionState(AT, cluster.topic_id, 1, 2, 5, (2,), 9, (1, 2, 3))
    cluster.fail_over()
    cluster.deliver()
    (response,) = cluster.hand_over(1, cluster.request_of(stale, controller_epoch=1))
    assert (response.error, response.partitions) == (ErrorCode.STALE_CONTROLLER_EPOCH, {})
    assert cluster.partition(1).role is Role.LEADER


@pytest.mark.parametrize(("offset", "error"), [(-1, ErrorCode.STALE_BROKER_EPOCH), (0, NONE), (1, NONE)])
def test_trap_5_a_request_for_an_earlier_registration_is_refused(offset: int, error: ErrorCode):
    cluster = settled("a")
    request = cluster.impose(2, [2, 3])
    header = request.header
    header = type(header)(header.controller_id, header.controller_epoch, cluster.brokers[1].broker_epoch + offset)
    (response,) = cluster.hand_over(1, type(request)(header, request.partitions, request.live_leaders))
    assert response.error is error


# 6: a leader knows its epoch without data


def test_trap_6_the_epoch_is_noted_at_election_on_disk_and_first():
    cluster = settled("a", "b")
    cluster.impose(2, [2, 3, 1])
    cluster.deliver(2)
    assert cluster.epochs(2) == [(0, 0), (1, 2)]
    assert cluster.brokers[2].disk[AT].epochs == [(0, 0), (1, 2)]
    response = cluster.brokers[2].core.offset_for_leader_epoch(EpochLookup(AT, 1, 1))
    assert (response.error, response.end) == (NONE, (1, 2))


def test_trap_6_an_epoch_without_records_is_replaced_and_dropped_with_the_leadership():
    cluster = settled("a")
    cluster.impose(2, [2, 3, 1])
    cluster.impose(2, [2, 3, 1])
    cluster.deliver(2)
    assert cluster.epochs(2) == [(0, 0), (2, 1)]
    # A leader demoted without an append drops its empty epoch: a truncation at or above the end removes it.
    cluster.impose(3, [2, 3, 1])
    cluster.deliver()
    response = cluster.fetch(2)
    assert response.diverging == (0, 1)
    assert cluster.epochs(2) == [(0, 0)]
    assert cluster.ends(2) == [(1, 1)]


# 7: truncation by epoch


def test_trap_7_a_follower_keeps_what_lies_beyond_its_high_watermark():
    """KIP-101: the record acknowledged by all survives, though the follower's mark is one round late."""
    cluster = settled("a", brokers=(1, 2), assignment=(1, 2))
    produce = cluster.produce(1, "b")
    cluster.fetch(2)
    cluster.park(2)
    assert produce.error is NONE
    assert cluster.ends(2) == [(2, 1)]
    cluster.brokers[2].write_checkpoint()
    cluster.kill(2)
    cluster.start(2)  # a bounce: it restarts with its checkpoint, HW 1
    cluster.deliver()
    assert cluster.ends(2) == [(2, 1)]
    cluster.fetch(2)
    cluster.fetch(2)
    cluster.alter_partition(1)
    cluster.kill(1)
    cluster.expire_session(1)
    cluster.deliver()
    assert cluster.state[0] == 2
    assert cluster.ends(2) == [(2, 2)]


def test_trap_7_a_replica_without_any_epoch_truncates_to_its_high_watermark():
    cluster = settled("a", "b", "c")
    cluster.brokers[2].write_checkpoint()
    cluster.kill(2)
    cluster.brokers[2].disk[AT].epochs = []
    cluster.brokers[2].checkpoint[AT] = 2
    cluster.start(2)
    cluster.deliver()
    assert cluster.ends(2) == [(2, 2)]
    cluster.settle()
    assert cluster.content(2) == cluster.content(1)
    assert cluster.epochs(2) == [(0, 2)]


def test_trap_7_a_followers_high_watermark_may_go_down_a_leaders_never():
    cluster = settled("a", "b")
    cluster.brokers[2].write_checkpoint()
    cluster.produce(1, "c", acks=1)
    cluster.fetch(2)
    cluster.fetch(3)
    cluster.fetch(2)
    cluster.fetch(3)
    cluster.fetch(3)
    assert cluster.ends(1, 2, 3) == [(3, 3), (3, 2), (3, 3)]
    cluster.impose(2, [1, 2, 3])
    cluster.deliver()
    cluster.fetch(3)  # the new leader's mark is still 2: an assignment, not a maximum
    assert cluster.ends(2, 3) == [(3, 2), (3, 2)]
    # On a leader: a follower that went back moves its end, not the mark.
    cluster.fetch(1)
    cluster.fetch(3)
    assert cluster.ends(2) == [(3, 3)]
    exchange = cluster.ask(3)
    exchange.round.partitions[0].fetch_offset = 1
    cluster.arrive(exchange)
    assert cluster.partition(2).leader_role.remotes[3].log_end_offset == 1
    assert cluster.ends(2) == [(3, 3)]


def test_trap_7_a_diverging_response_moves_no_high_watermark_and_reports_nothing_to_the_leader():
    """KAFKA-14704 on the follower; 1.2 on the leader."""
    cluster = settled("a")
    cluster.produce(1, "zombie", acks=1)
    cluster.impose(2, [2, 3])
    cluster.deliver()
    cluster.produce(2, "b", acks=1)
    cluster.fetch(3)
    cluster.fetch(3)
    assert cluster.ends(2) == [(2, 2)]
    response = cluster.fetch(1)
    assert (response.diverging, response.high_watermark, response.records) == ((0, 1), 2, b"")
    assert cluster.ends(1) == [(1, 1)]
    assert cluster.partition(2).leader_role.remotes[1].log_end_offset == -1
    assert cluster.brokers[2].proposals == []


def test_trap_7_out_of_range_beyond_the_leader_truncates_to_the_leaders_end():
    """No longer fatal since 2.1; here after an unclean election with a lost epoch file."""
    cluster = settled("a", "b", "c")
    cluster.kill(1, 2, 3)
    cluster.brokers[1].fill(AT, (0, "a"))
    cluster.brokers[2].fill(AT, (0, "a"), (7, "b"), (7, "c"))
    cluster.expire_session(1, 2, 3)
    cluster.start(1, 2)
    cluster.deliver()
    cluster.impose(1, [1])
    cluster.deliver()
    response = cluster.fetch(2)
    assert (response.error, response.log_end_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)
    assert cluster.ends(2) == [(1, 1)]
    assert cluster.fetch(2).error is NONE
    assert cluster.content(2) == cluster.content(1)


def test_trap_7_a_follower_behind_the_leaders_start_begins_again_there():
    cluster = settled("a")
    cluster.kill(3)
    for value in "bcd":
        cluster.produce(1, value, acks=1)
    cluster.impose(1, [1, 2])
    cluster.deliver()
    cluster.settle()
    log = cluster.brokers[1].disk[AT]
    log.batches = log.batches[2:]
    log.log_start_offset = 2
    cluster.brokers[1].execute(cluster.brokers[1].core.log_start_advanced(AT, 2))
    cluster.start(3)
    cluster.deliver()
    response = cluster.fetch(3)
    assert (response.error, response.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
    assert cluster.ends(3) == [(2, 2)]
    assert cluster.epochs(3) == []
    cluster.settle()
    assert cluster.content(3) == cluster.content(1)
    assert cluster.ends(3) == [(4, 4)]


def test_trap_7_the_leaders_log_start_is_followed_after_the_high_watermark():
    """Records first, then the mark, then the log start, which may not pass the mark; also in an empty response."""
    cluster = settled("a", "b", "c")
    broker = cluster.brokers[1]
    broker.disk[AT].log_start_offset = 2
    broker.disk[AT].batches = broker.disk[AT].batches[2:]
    broker.execute(broker.core.log_start_advanced(AT, 2))
    assert cluster.epochs(1) == [(0, 2)]
    cluster.fetch(2)
    assert (cluster.partition(2).log_start_offset, cluster.epochs(2)) == (2, [(0, 2)])
    assert cluster.partition(1).leader_role.remotes[2].log_start_offset == 0  # as the follower said when it asked
    cluster.fetch(2)
    assert cluster.partition(1).leader_role.remotes[2].log_start_offset == 2
    assert cluster.consume(1, 1).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.brokers[1].core.list_offset(OffsetLookup(AT, -2)).offset == 2


# 8: more than one round


def test_trap_8_a_follower_of_three_private_epochs_comes_down_epoch_by_epoch():
    """KIP-279: each round takes away at least one own epoch; then the logs agree."""
    cluster = settled("a")
    cluster.kill(1, 2, 3)
    cluster.brokers[1].fill(AT, (0, "a"), (2, "l"), (4, "m"), (6, "n"), (6, "o"))
    cluster.brokers[2].fill(AT, (0, "a"), (1, "p"), (3, "q"), (5, "r"), (5, "s"), (5, "t"))
    cluster.start(1, 2)
    for broker_id in (1, 2):
        state = PartitionState(AT, cluster.topic_id, 1, 1, 7, (1, 2), 9, (1, 2, 3))
        cluster.brokers[broker_id].metadata.live = frozenset({1, 2})
        cluster.brokers[broker_id].control.clear()
        cluster.hand_over(broker_id, cluster.request_of(state))
    cuts = []
    while (response := cluster.fetch(2)).diverging is not None:
        cuts.append((tuple(response.diverging), cluster.ends(2)[0][0], cluster.epochs(2)[-1][0]))
    assert cuts == [((4, 3), 3, 3), ((2, 2), 2, 1), ((0, 1), 1, 0)]
    assert cluster.content(2) == cluster.content(1)


# 9: what a consumer gets


def test_trap_9_between_high_watermark_and_end_is_no_error():
    cluster = settled("a")
    cluster.produce(1, "b", "c", acks=1)
    assert cluster.ends(1) == [(3, 1)]
    for offset in (1, 2, 3):
        result = cluster.consume(1, offset).result
        assert (result.error, result.records, result.high_watermark) == (NONE, b"", 1)
    for offset in (-1, 4):
        assert cluster.consume(1, offset).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.consume(1, 0).result.records == cluster.content(1)[0][2]


def test_trap_9_only_the_leader_serves_and_others_say_who_leads():
    """As Kafka's fetch before version 11; reading from followers is not emulated."""
    cluster = settled("a")
    hint = LeaderHint(1, 0)
    fetched = cluster.consume(2, 0).result
    assert (fetched.error, fetched.leader_hint) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, hint)
    produced = cluster.produce(2, "x").result
    assert (produced.error, produced.leader_hint) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, hint)
    core = cluster.brokers[2].core
    assert core.list_offset(OffsetLookup(AT, -1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert core.offset_for_leader_epoch(EpochLookup(AT, 0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(None, NONE), (1, NONE), (0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_trap_9_the_epoch_is_compared_before_the_leader(epoch: int | None, error: ErrorCode):
    """KIP-320: a fetch of another epoch is refused with that error, also by a follower."""
    cluster = settled("a")
    cluster.impose(1, [1, 2, 3])
    cluster.deliver()
    assert cluster.consume(1, 0, epoch=epoch).error is error
    follower = ErrorCode.NOT_LEADER_OR_FOLLOWER if error is NONE else error
    assert cluster.consume(2, 0, epoch=epoch).error is follower


def test_trap_9_unknown_here_is_another_error_than_not_leader():
    """Known in the cluster -> NOT_LEADER_OR_FOLLOWER, else UNKNOWN_TOPIC_OR_PARTITION."""
    cluster = settled("a", brokers=(1, 2, 3, 4))
    assert cluster.consume(4, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.brokers[4].metadata.states.clear()
    assert cluster.consume(4, 0).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# 10: no leader


def test_trap_10_without_a_leader_replicas_stay_as_they_are():
    """A LeaderAndIsr with leader -1, or a dead one, changes no state; the log is there, its mark is kept."""
    cluster = settled("a")
    cluster.brokers[2].write_checkpoint()
    cluster.kill(2)
    cluster.impose(1, [1, 3])
    cluster.deliver()
    cluster.kill(1, 3)
    cluster.expire_session(1, 2, 3)
    cluster.start(2)
    cluster.deliver()
    assert cluster.state[0] == -1
    assert cluster.partition(2).role is Role.NONE
    assert cluster.ends(2) == [(1, 1)]
    assert cluster.brokers[2].core.high_watermarks() == {AT: 1}
    assert cluster.brokers[2].core.leaders_followed() == set()


def test_trap_10_a_leader_that_is_not_alive_here_is_not_followed():
    """It must be in this broker's metadata cache; else nothing changes, a leader even goes on leading."""
    cluster = settled("a")
    cluster.impose(2, [2, 3])
    for broker_id in (1, 3):
        cluster.brokers[broker_id].metadata.live -= {2}
        (message, *_) = cluster.brokers[broker_id].control
        (response,) = cluster.hand_over(broker_id, message)
        assert response.partitions == {AT: NONE}
    assert (cluster.partition(1).role, cluster.partition(1).leader_epoch) == (Role.LEADER, 0)
    assert (cluster.partition(3).leader, cluster.partition(3).leader_epoch) == (1, 0)
    assert cluster.brokers[3].core.leaders_followed() == {1}


# Also: duplicates, zombies, late responses


def test_the_response_to_a_duplicate_has_its_offset_and_nothing_is_appended():
    cluster = settled("a")
    batch = {"producer_id": 5, "producer_epoch": 0, "sequence": 0}
    first = cluster.produce(1, "b", "c", acks=1, **batch)
    again = cluster.produce(1, "b", "c", **batch)
    assert first.result.base_offset == 1
    assert not again.is_completed  # acks=all waits for the first one's commit
    assert cluster.ends(1) == [(3, 1)]
    cluster.settle()
    assert (again.error, again.result.base_offset) == (NONE, 1)
    assert again.result.log_append_time_ms == START_MS, "the time of the batch that is in the log"
    assert cluster.ends(1, 2, 3) == [(3, 3)] * 3


def test_a_duplicate_is_recognised_by_the_next_leader():
    """KIP-98: the state travels with the batches; also after a truncation it knows just the rest."""
    cluster = settled("a")
    batch = {"producer_id": 5, "producer_epoch": 0}
    cluster.produce(1, "b", sequence=0, **batch)
    cluster.settle()
    cluster.produce(1, "c", acks=1, sequence=1, **batch)  # reaches no broker
    cluster.impose(2, [2, 3])
    cluster.settle()
    assert cluster.produce(2, "b", sequence=0, acks=1, **batch).result.base_offset == 1
    assert cluster.ends(2)[0][0] == 2
    assert cluster.produce(2, "c", sequence=1, acks=1, **batch).result.base_offset == 2
    cluster.settle()
    cluster.impose(1, [1, 2, 3])
    cluster.settle()
    assert cluster.produce(1, "c", sequence=1, acks=1, **batch).result.base_offset == 2
    assert cluster.ends(1, 2, 3) == [(3, 3)] * 3


def test_a_zombie_leader_commits_nothing_and_loses_its_records():
    """It accepts writes, since produces carry no epoch; its ISR can't follow, its proposals are refused."""
    cluster = settled("a", rules=TopicRules(min_insync_replicas=2))
    cluster.expire_session(1)  # its process lives on and hears nothing
    cluster.deliver(2, 3)
    zombie = cluster.produce(1, "zombie")
    assert cluster.ends(1) == [(2, 1)]
    cluster.advance(31_000)
    verdict = cluster.alter_partition(1)
    assert verdict.error is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.ends(1) == [(2, 1)]
    assert zombie.error is ErrorCode.REQUEST_TIMED_OUT
    assert cluster.produce(2, "b", acks=1).error is NONE
    cluster.fetch(3)
    cluster.fetch(3)
    cluster.register_again(1)
    cluster.deliver()
    cluster.settle()
    assert cluster.content(1) == cluster.content(2) == cluster.content(3)
    assert [epoch for _, epoch, _ in cluster.content(1)] == [0, 1]


def test_a_late_response_of_an_older_epoch_changes_nothing():
    """KAFKA-6880 and rule 2 of follower.py: responses never cross epochs, not even from the same leader."""
    cluster = settled("a")
    cluster.produce(1, "b", acks=1)
    late = cluster.ask(2)
    cluster.arrive(late)
    cluster.impose(1, [1, 2, 3])
    cluster.deliver()
    before = cluster.content(2)
    cluster.deliver_response(late)
    assert cluster.content(2) == before
    fresh = cluster.ask(2)
    assert fresh is not None
    cluster.deliver_response(late)
    assert cluster.content(2) == before
    cluster.arrive(fresh)
    cluster.deliver_response(fresh)
    cluster.deliver_response(fresh)  # repeated
    assert cluster.content(2) == cluster.content(1)


def test_a_zombie_follower_is_fenced():
    """M5: a follower of an older epoch may not fetch; it stops until the next LeaderAndIsr."""
    cluster = settled("a")
    cluster.impose(1, [1, 2, 3])
    cluster.deliver(1, 3)
    cluster.produce(1, "b", acks=1)
    response = cluster.fetch(2)
    assert response.error is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.partition(1).leader_role.remotes[2].log_end_offset == -1
    cluster.advance(100_000)
    assert cluster.ask(2) is None
    cluster.deliver()
    assert cluster.fetch(2).error is NONE


def test_a_re_elected_leader_forgets_its_followers_ends_by_default():
    """The deliberate difference M6: a log end of an earlier epoch commits nothing: its owner may have truncated."""
    for keeps, high_watermark in ((False, 1), (True, 2)):
        cluster = settled("a", settings=CoreSettings(reelected_leader_keeps_follower_state=keeps))
        cluster.produce(1, "b", acks=1)
        cluster.fetch(2)
        cluster.fetch(2)  # the leader knows LEO(2) = 2; 3 lags
        cluster.impose(1, [1, 2])
        cluster.deliver(1)
        assert cluster.ends(1) == [(2, high_watermark)]


def test_stop_replica_checks_the_epoch_and_stops_the_fetcher():
    """KIP-570: an older epoch is FENCED_LEADER_EPOCH; none, or an equal one, is performed."""
    cluster = settled("a")
    cluster.impose(1, [1, 2, 3])
    cluster.deliver()
    header = cluster.request_of().header
    for leader_epoch, delete, error, follows in (
        (0, False, ErrorCode.FENCED_LEADER_EPOCH, {1}),
        (1, False, NONE, set()),
        (None, True, NONE, set()),
    ):
        (response,) = cluster.hand_over(2, StopReplicaRequest(header, [StopReplicaPartition(AT, leader_epoch, delete)]))
        assert response.partitions == {AT: error}
        assert cluster.brokers[2].core.leaders_followed() == follows
    assert AT not in cluster.brokers[2].disk
    assert cluster.brokers[2].core.partition(AT) is None
