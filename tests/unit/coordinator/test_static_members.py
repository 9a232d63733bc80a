"""Static members that restart: KIP-345, KIP-814, KAFKA-9801."""

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, Harness, subscription

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupState, JoinGroupResult, LeavingMember, Protocol, SyncGroupResult

E = ErrorCode
RANGE, STICKY = Protocol("range", subscription("t")), Protocol("sticky", subscription("t"))


def static_group(**changes) -> tuple[Harness, list[str]]:
    """A Stable group of two static members, i1 (the leader) and i2."""
    broker = Harness()
    tokens = [broker.join(group_instance_id=name, **changes) for name in ("i1", "i2")]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync_all(ids)
    return broker, ids


def test_a_restarted_member_gets_a_new_id_and_its_assignment_without_a_rebalance():
    broker, ids = static_group()
    broker.uuids = ["new"]
    result = broker.joined(broker.join(group_instance_id="i2"))
    assert (result.member_id, result.generation, result.leader) == ("i2-new", 1, ids[0])
    assert (result.members, result.skip_assignment) == ((), False)
    assert broker.group().state is GroupState.STABLE
    assert broker.synced(broker.sync("i2-new", 1)).assignment == ids[1].encode()


def test_the_old_id_is_fenced_with_its_instance_id_and_unknown_without():
    broker, ids = static_group()
    broker.join(group_instance_id="i2")
    old = ids[1]
    assert broker.heartbeat(old, instance="i2") is E.FENCED_INSTANCE_ID
    assert broker.heartbeat(old) is E.UNKNOWN_MEMBER_ID
    assert broker.synced(broker.sync(old, group_instance_id="i2")).error is E.FENCED_INSTANCE_ID
    fields = {"generation": 1, "member_id": old, "group_instance_id": "i2"}
    assert broker.committed(broker.commit(1, **fields)) is E.FENCED_INSTANCE_ID
    assert broker.leave(LeavingMember(old, "i2")).members[0].error is E.FENCED_INSTANCE_ID
    assert broker.joined(broker.join(old, group_instance_id="i2")).error is E.FENCED_INSTANCE_ID


def test_a_restarted_leader_skips_the_assignment_and_keeps_the_lead():
    """KIP-814: JoinGroup v9."""
    broker, ids = static_group()
    broker.uuids = ["new"]
    result = broker.joined(broker.join(group_instance_id="i1"))
    assert (result.leader, result.member_id, result.skip_assignment) == ("i1-new", "i1-new", True)
    assert [member.member_id for member in result.members] == [ids[1], "i1-new"]
    assert broker.group().leader == "i1-new"


def test_before_version_9_a_restarted_leader_is_shown_its_old_id_so_that_it_does_not_assign():
    broker, ids = static_group()
    result = broker.joined(broker.join(group_instance_id="i1", supports_skipping_assignment=False))
    assert (result.leader, result.members, result.skip_assignment) == (ids[0], (), False)
    assert broker.group().leader == result.member_id


def test_the_replacement_is_committed_before_its_response_and_survives_a_failover():
    broker, ids = static_group()
    broker.holds = True
    token = broker.join(group_instance_id="i2")
    assert broker.is_parked(token)
    broker.release()
    new = broker.joined(token).member_id
    after = broker.successor()
    assert after.heartbeat(new, instance="i2") is E.NONE
    assert after.heartbeat(ids[1], instance="i2") is E.FENCED_INSTANCE_ID


def test_a_replacement_that_cannot_be_written_is_undone():
    broker, ids = static_group()
    broker.append_error = E.NOT_LEADER_OR_FOLLOWER
    changes = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 70_000}
    result = broker.joined(broker.join(group_instance_id="i1", **changes))
    assert result == JoinGroupResult(E.NOT_COORDINATOR, 1, "consumer", "range", ids[0], "")
    assert broker.heartbeat(ids[0], instance="i1") is E.NONE
    member = {member.member_id: member for member in broker.group().members}[ids[0]]
    assert (member.session_timeout_ms, broker.group().leader) == (SESSION_MS, ids[0])


def test_a_second_restart_while_the_first_is_written_gets_its_own_id():
    """Kafka's callback would return the id of the first, which is fenced."""
    broker, _ = static_group()
    broker.holds = True
    broker.uuids = ["one", "two"]
    first, second = broker.join(group_instance_id="i2"), broker.join(group_instance_id="i2")
    assert broker.joined(first) == JoinGroupResult(E.FENCED_INSTANCE_ID, member_id="i2-one")
    broker.release()
    assert broker.is_parked(second)
    broker.release()
    assert broker.joined(second).member_id == "i2-two"
    assert broker.heartbeat("i2-two", instance="i2") is E.NONE


def test_a_join_phase_that_ends_first_responds_to_the_restarted_member():
    broker, ids = static_group()
    broker.holds = True
    restarted = broker.join(group_instance_id="i2")
    broker.join(ids[0], group_instance_id="i1")
    new = broker.joined(restarted)
    assert new.generation == 2
    broker.release(E.REQUEST_TIMED_OUT)
    assert broker.heartbeat(new.member_id, 2, instance="i2") is E.NONE


def test_a_join_phase_in_progress_responds_to_a_restarted_leader_later():
    broker, ids = static_group()
    broker.holds = True
    restarted = broker.join(group_instance_id="i1")
    joining = broker.join()
    broker.release()
    assert broker.is_parked(restarted)
    broker.join(ids[1], group_instance_id="i2")
    assert broker.joined(restarted).generation == broker.joined(joining).generation == 2


def test_a_restarted_leader_whose_group_was_unloaded_is_sent_away():
    broker, _ = static_group()
    broker.holds = True
    restarted = broker.join(group_instance_id="i1")
    broker.resign(1)
    broker.release()
    assert broker.joined(restarted).error is E.NOT_COORDINATOR


def test_a_change_of_the_chosen_protocol_rebalances():
    broker, ids = static_group(protocols=(RANGE, STICKY))
    token = broker.join(group_instance_id="i2", protocols=(STICKY,))
    assert broker.is_parked(token)
    assert broker.group().state is GroupState.PREPARING_REBALANCE
    broker.join(ids[0], group_instance_id="i1", protocols=(RANGE, STICKY))
    assert broker.joined(token).protocol_name == "sticky"


def test_kafka_9801_in_completing_rebalance_a_restart_rebalances_and_fences_the_parked_sync():
    """KAFKA-9801: the leader may be assigning to the old id."""
    broker = Harness()
    tokens = [broker.join(group_instance_id=name) for name in ("i1", "i2")]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    parked = broker.sync(ids[1])
    token = broker.join(group_instance_id="i2")
    assert broker.synced(parked) == SyncGroupResult(E.FENCED_INSTANCE_ID)
    assert broker.is_parked(token)
    assert broker.group().state is GroupState.PREPARING_REBALANCE


def test_in_preparing_rebalance_a_restart_is_parked_and_fences_the_parked_join():
    broker, ids = static_group()
    parked = broker.join(ids[0], group_instance_id="i1")
    restarted = broker.join(group_instance_id="i1")
    assert broker.joined(parked) == JoinGroupResult(E.FENCED_INSTANCE_ID, member_id=ids[0])
    broker.join(ids[1], group_instance_id="i2")
    assert broker.joined(restarted).generation == 2


def test_a_rejoin_with_both_ids_is_an_ordinary_one():
    broker, ids = static_group()
    assert broker.joined(broker.join(ids[1], group_instance_id="i2")).member_id == ids[1]


def test_a_restart_restarts_the_session():
    broker, ids = static_group()
    broker.after(SESSION_MS - 1)
    broker.heartbeat(ids[0], instance="i1")
    broker.join(group_instance_id="i2")
    broker.after(SESSION_MS - 1)
    assert len(broker.group().members) == 2


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_member_replaced_before_it_synchronised_is_missed_by_the_sync_timer(restarts):
    """GroupMetadata.replaceStaticMember leaves the old id among the expected ones, so the group rebalances once."""
    broker = Harness()
    tokens = [broker.join(group_instance_id=name, rebalance_timeout_ms=20_000) for name in ("i1", "i2")]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync(ids[0], 1, [(member_id, b"a") for member_id in ids])
    for _ in range(restarts):
        new = broker.joined(broker.join(group_instance_id="i2", rebalance_timeout_ms=20_000)).member_id
    for _ in range(3):
        broker.heartbeat(ids[0])
        broker.heartbeat(new)
        broker.after(7_000)
    assert broker.group().state is GroupState.PREPARING_REBALANCE
    assert len(broker.group().members) == 2


def test_a_restarted_member_brings_its_own_rebalance_timeout():
    """The join phase lasts the longest timeout of those that are members then."""
    session = {"session_timeout_ms": 300_000}
    broker, ids = static_group(**session)
    broker.joined(broker.join(group_instance_id="i2", rebalance_timeout_ms=90_000, **session))
    waiting = broker.join(ids[0], group_instance_id="i1", **session)
    broker.after(89_999)
    assert broker.is_parked(waiting)
    broker.after(1)
    assert broker.joined(waiting).generation == 2
