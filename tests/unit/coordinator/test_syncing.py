"""SyncGroup, Heartbeat and LeaveGroup: order of checks, states, and what a failed write means."""

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, Harness

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupState, JoinGroupResult, LeavingMember, SyncGroupResult

E = ErrorCode


def completing(members: int = 2, broker: Harness | None = None, **changes) -> tuple[Harness, list[str]]:
    """A group that waits for its leader's assignment; the leader is the first."""
    broker = broker or Harness()
    tokens = [broker.join(**changes) for _ in range(members)]
    broker.after(2 * INITIAL_DELAY_MS)
    return broker, [broker.joined(token).member_id for token in tokens]


def test_the_checks_of_sync_in_their_order():
    broker, ids = completing()
    assert broker.synced(broker.sync("x", 1, group="nogroup")).error is E.UNKNOWN_MEMBER_ID
    assert broker.synced(broker.sync("x", 9, group_instance_id="i")).error is E.UNKNOWN_MEMBER_ID
    assert broker.synced(broker.sync("x", 9)).error is E.UNKNOWN_MEMBER_ID
    wrong = {"protocol_type": "connect", "protocol_name": "range"}
    assert broker.synced(broker.sync(ids[0], 9, **wrong)).error is E.ILLEGAL_GENERATION
    assert broker.synced(broker.sync(ids[0], 1, **wrong)).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert broker.synced(broker.sync(ids[0], 1, protocol_name="sticky")).error is E.INCONSISTENT_GROUP_PROTOCOL
    broker.join()
    assert broker.synced(broker.sync(ids[0], 1)).error is E.REBALANCE_IN_PROGRESS


def test_assignments_are_sent_after_the_record_is_committed():
    broker, ids = completing()
    broker.holds = True
    follower = broker.sync(ids[1])
    assert broker.log == []
    leader = broker.sync(ids[0], 1, [(ids[0], b"a"), (ids[1], b"b"), ("unknown", b"c")])
    assert (len(broker.log), broker.group().state) == (1, GroupState.COMPLETING_REBALANCE)
    assert broker.is_parked(follower)
    assert broker.is_parked(leader)
    broker.release()
    assert broker.synced(follower) == SyncGroupResult(E.NONE, "consumer", "range", b"b")
    assert broker.synced(leader).assignment == b"a"
    assert broker.group().state is GroupState.STABLE


def test_members_that_the_leader_forgot_get_an_empty_assignment():
    broker, ids = completing()
    follower = broker.sync(ids[1])
    broker.sync(ids[0], 1, [(ids[0], b"a")])
    assert broker.synced(follower) == SyncGroupResult(E.NONE, "consumer", "range", b"")


def test_a_stable_group_ignores_a_second_assignment():
    broker = Harness()
    ids = broker.stable_group()
    again = broker.synced(broker.sync(ids[0], 1, [(ids[0], b"other")]))
    assert again.assignment == ids[0].encode()
    assert len(broker.log) == 1


def test_a_repeated_sync_replaces_the_parked_one():
    broker, ids = completing()
    first, second = broker.sync(ids[1]), broker.sync(ids[1])
    broker.sync(ids[0])
    assert broker.is_parked(first)
    assert broker.synced(second).error is E.NONE


@pytest.mark.parametrize(
    ("append_error", "response"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REBALANCE_IN_PROGRESS),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE),
    ],
)
def test_a_failed_write_fails_all_parked_syncs_and_rebalances(append_error, response):
    broker, ids = completing()
    broker.append_error = append_error
    tokens = [broker.sync(ids[1]), broker.sync(ids[0], 1, [(ids[0], b"a")])]
    assert [broker.synced(token) for token in tokens] == [SyncGroupResult(response)] * 2
    assert broker.group().state is GroupState.PREPARING_REBALANCE
    assert {member.assignment for member in broker.group().members} == {b""}


def test_a_late_outcome_of_an_older_generation_is_ignored():
    broker, ids = completing(1)
    broker.holds = True
    parked = broker.sync(ids[0], 1, [(ids[0], b"a")])
    broker.join()
    assert broker.synced(parked).error is E.REBALANCE_IN_PROGRESS
    broker.join(ids[0])
    assert broker.group().generation == 2
    broker.release()
    assert (broker.group().state, broker.group().members[0].assignment) == (GroupState.COMPLETING_REBALANCE, b"")


def test_a_rebalance_completes_parked_syncs():
    broker, ids = completing()
    parked = broker.sync(ids[1])
    broker.leave(ids[0])
    assert broker.synced(parked).error is E.REBALANCE_IN_PROGRESS


def test_a_sync_restarts_the_session_with_its_response_not_when_it_is_parked():
    broker, ids = completing()
    broker.after(SESSION_MS - 1)
    broker.heartbeat(ids[0])
    parked = broker.sync(ids[1])
    broker.after(SESSION_MS - 1)
    assert broker.is_parked(parked)  # a parked request stands for heartbeats
    broker.sync(ids[0])
    assert {member.session_deadline_ms for member in broker.group().members} == {broker.now_ms + SESSION_MS}


def test_the_checks_of_heartbeat_in_their_order():
    broker = Harness()
    ids = broker.stable_group(group_instance_id="i")
    assert broker.heartbeat("x", 9, instance="i") is E.FENCED_INSTANCE_ID
    assert broker.heartbeat("x", 9, instance="j") is E.UNKNOWN_MEMBER_ID
    assert broker.heartbeat("x", 9) is E.UNKNOWN_MEMBER_ID
    assert broker.heartbeat(ids[0], 9, instance="i") is E.ILLEGAL_GENERATION
    assert broker.heartbeat(ids[0], 1, instance="i") is E.NONE
    assert broker.heartbeat(ids[0], 1) is E.NONE


def test_a_heartbeat_counts_in_every_state_with_members():
    broker, ids = completing()
    assert broker.heartbeat(ids[0]) is E.NONE  # CompletingRebalance: not REBALANCE_IN_PROGRESS
    broker.sync_all(ids)
    assert broker.heartbeat(ids[0]) is E.NONE
    broker.join()
    broker.after(5_000)
    assert broker.heartbeat(ids[0]) is E.REBALANCE_IN_PROGRESS
    assert broker.group().members[0].session_deadline_ms == broker.now_ms + SESSION_MS


def test_leaving_one_by_one():
    broker = Harness()
    ids = broker.stable_group(2)
    token = broker.join(group_instance_id="i")
    for member_id in ids:
        broker.join(member_id)
    static = broker.joined(token).member_id
    result = broker.leave(
        LeavingMember("", "i"),
        LeavingMember("", "j"),
        LeavingMember("", None),
        LeavingMember("x", None),
        LeavingMember(ids[1], "j"),
        LeavingMember(ids[1], None, "shutting down"),
    )
    assert result.error is E.NONE
    unknown = E.UNKNOWN_MEMBER_ID
    assert [member.error for member in result.members] == [E.NONE, unknown, unknown, unknown, unknown, E.NONE]
    assert [member.member_id for member in broker.group().members] == [ids[0]]
    assert static not in [member.member_id for member in broker.group().members]


def test_a_static_member_leaves_by_its_instance_id_or_by_both_ids():
    for leaving, error in [(("", "i"), E.NONE), (("right", "i"), E.NONE), (("wrong", "i"), E.FENCED_INSTANCE_ID)]:
        broker = Harness()
        ids = broker.stable_group(group_instance_id="i")
        member_id = ids[0] if leaving[0] == "right" else leaving[0]
        assert broker.leave(LeavingMember(member_id, leaving[1])).members[0].error is error


def test_leaving_completes_a_parked_join_and_may_end_the_join_phase():
    broker = Harness()
    ids = broker.stable_group(3)
    first = broker.join(ids[0])
    second = broker.join(ids[1])
    broker.leave(ids[1])
    assert broker.joined(second) == JoinGroupResult(E.UNKNOWN_MEMBER_ID)
    assert broker.is_parked(first)
    broker.leave(ids[2])
    assert broker.joined(first).generation == 2


def test_when_the_leader_leaves_any_remaining_member_leads():
    broker = Harness()
    ids = broker.stable_group(3)
    broker.leave(ids[0])
    assert broker.group().leader in ids[1:]


def test_completed_rebalances_are_counted_with_the_leaders_assignment():
    broker = Harness()
    broker.stable_group()
    assert broker.coordinator.counters.completed_rebalances == 1
