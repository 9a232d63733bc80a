"""The phases of a rebalance and the timers: initial delay, join, sync, sessions, new members."""

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Harness

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupState, JoinGroupResult
from tidegauge_broker.coordinator.group.phases import NEW_MEMBER_TIMEOUT_MS

PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE


def test_the_initial_delay_is_never_cut_short():
    broker = Harness()
    token = broker.join()
    broker.after(INITIAL_DELAY_MS - 1)
    assert broker.is_parked(token)
    broker.after(1)
    assert broker.joined(token).generation == 1


def test_the_initial_delay_is_not_extended_beyond_the_longest_rebalance_timeout() -> None:
    """InitialDelayedJoin: what remains after the first round is max(rebalance timeout - delay, 0)."""
    broker = Harness()
    tokens = [broker.join(rebalance_timeout_ms=INITIAL_DELAY_MS - 1_000)]
    broker.after(1_000)
    tokens.append(broker.join(rebalance_timeout_ms=INITIAL_DELAY_MS - 1_000))
    broker.after(INITIAL_DELAY_MS - 1_000)
    assert [broker.joined(token).generation for token in tokens] == [1, 1]


def test_the_initial_delay_is_extended_for_a_member_that_joined_in_it():
    """InitialDelayedJoin: by the delay again, as long as the rebalance timeout has time left."""
    broker = Harness()
    first = broker.join(rebalance_timeout_ms=7_000)
    for _ in range(2):
        broker.after(INITIAL_DELAY_MS - 1)
        broker.join(rebalance_timeout_ms=7_000)
        broker.after(1)
        assert broker.is_parked(first)
    # 3000 + min(3000, 4000) + min(3000, 1000): the rebalance timeout is used up after 7000 ms.
    broker.join(rebalance_timeout_ms=7_000)
    broker.after(999)
    assert broker.is_parked(first)
    broker.after(1)
    assert len(broker.joined(first).members) == 4


def test_the_initial_delay_is_not_extended_after_generation_0():
    broker = Harness()
    broker.leave(*broker.stable_group())
    assert (broker.group().state, broker.group().generation) == (GroupState.EMPTY, 2)
    first = broker.join()
    broker.after(INITIAL_DELAY_MS - 1)
    second = broker.join()
    broker.after(1)
    assert [broker.joined(token).generation for token in (first, second)] == [3, 3]


def test_a_delay_of_0_ends_with_the_next_step():
    broker = Harness(group_initial_rebalance_delay_ms=0)
    token = broker.join()
    assert broker.is_parked(token)
    broker.after(0)
    assert broker.joined(token).generation == 1


def test_the_join_phase_ends_when_all_members_have_joined():
    broker = Harness()
    ids = broker.stable_group(2)
    third = broker.join()
    first = broker.join(ids[0])
    assert broker.is_parked(first)
    second = broker.join(ids[1])
    assert {broker.joined(token).generation for token in (first, second, third)} == {2}
    assert broker.group().state is COMPLETING


def test_kafka_7909_a_pending_member_holds_up_the_join_phase_until_it_joins_leaves_or_expires():
    """KAFKA-7909: a pending member that never joins, or leaves, does not keep the phase open."""
    for end in ("joins", "leaves", "expires"):
        broker = Harness()
        ids = broker.stable_group()
        pending = broker.joined(broker.join(requires_known_member_id=True)).member_id
        first = broker.join(ids[0])
        assert broker.is_parked(first)
        if end == "joins":
            broker.join(pending)
        elif end == "leaves":
            broker.leave(pending)
        else:
            broker.after(SESSION_MS)
        assert broker.joined(first).generation == 2
        assert len(broker.group().members) == (2 if end == "joins" else 1)


def test_the_join_phase_lasts_the_longest_rebalance_timeout_and_drops_dynamic_members():
    broker = Harness()
    tokens = [broker.join(rebalance_timeout_ms=20_000), broker.join(rebalance_timeout_ms=30_000)]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync_all(ids)
    first = broker.join(ids[0], rebalance_timeout_ms=20_000)
    for _ in range(5):
        broker.after(5_999)
        assert broker.heartbeat(ids[1]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert broker.is_parked(first)
    broker.after(5)
    assert broker.joined(first).generation == 2
    assert broker.heartbeat(ids[1], 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_survive_the_join_timer_with_their_metadata_and_not_the_sync_timer():
    """KIP-345; KAFKA-12890."""
    broker = Harness()
    tokens = [broker.join(), broker.join(group_instance_id="i", session_timeout_ms=300_000)]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync_all(ids)
    first = broker.join(ids[0])
    broker.after(REBALANCE_MS)
    assert [member.member_id for member in broker.joined(first).members] == ids
    broker.sync(ids[0], 2, [(member_id, b"a") for member_id in ids])
    assert broker.group().state is GroupState.STABLE
    for _ in range(10):
        broker.after(6_000)
        broker.heartbeat(ids[0], 2)
    assert (broker.group().state, len(broker.group().members)) == (PREPARING, 1)


def test_when_no_member_rejoins_but_static_ones_remain_the_join_timer_starts_again():
    broker = Harness()
    ids = broker.stable_group(2, group_instance_id=None)
    token = broker.join(group_instance_id="i", session_timeout_ms=300_000)
    broker.join(ids[0])
    broker.join(ids[1])
    static = broker.joined(token).member_id
    broker.sync_all([*ids, static], 2)
    broker.leave(ids[0])
    broker.after(REBALANCE_MS)
    assert (broker.group().state, [member.member_id for member in broker.group().members]) == (PREPARING, [static])
    back = broker.join(static, group_instance_id="i", session_timeout_ms=300_000)
    joined = broker.joined(back)
    assert (joined.generation, joined.leader) == (3, static)


def test_if_the_leader_has_not_rejoined_a_member_that_has_leads():
    broker = Harness()
    tokens = [broker.join(group_instance_id="i", session_timeout_ms=300_000), broker.join()]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync_all(ids)
    assert broker.group().leader == ids[0]
    third = broker.join()
    second = broker.join(ids[1])
    broker.after(REBALANCE_MS)
    assert broker.joined(third).leader == broker.joined(second).leader == ids[1] == broker.group().leader


def test_a_new_generation_is_counted_and_persisted_when_the_group_becomes_empty():
    broker = Harness()
    broker.leave(*broker.stable_group())
    view = broker.group()
    assert (view.state, view.generation, view.protocol_name, view.leader) == (GroupState.EMPTY, 2, None, None)
    assert broker.successor().group().generation == 2


def test_a_session_expires_and_the_group_rebalances():
    broker = Harness()
    ids = broker.stable_group(2)
    broker.after(SESSION_MS - 1)
    assert broker.heartbeat(ids[0]) is ErrorCode.NONE
    broker.after(1)
    assert broker.group().state is PREPARING
    assert broker.heartbeat(ids[1]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert "on heartbeat expiration" in broker.group().reason


def test_a_static_member_expires_with_its_session_like_others():
    broker = Harness()
    broker.stable_group(group_instance_id="i")
    broker.after(SESSION_MS)
    assert broker.group().state is GroupState.EMPTY


def test_joining_is_no_heartbeat_but_parked_requests_stand_for_one():
    broker = Harness()
    ids = broker.stable_group(2)
    broker.after(SESSION_MS - 1)
    broker.heartbeat(ids[0])
    # A follower's unchanged JoinGroup is completed at once, and does not restart its session.
    broker.joined(broker.join(ids[1]))
    broker.after(1)
    assert [member.member_id for member in broker.group().members] == [ids[0]]
    # A parked JoinGroup keeps the member for the whole join phase.
    broker.join()
    parked = broker.join(ids[0])
    assert broker.joined(parked).generation == 2
    assert broker.group().members[0].session_deadline_ms == broker.now_ms + SESSION_MS


def test_kafka_9752_a_new_member_expires_after_five_minutes_in_its_first_join_with_a_response():
    """KAFKA-9752: a member whose client has disconnected does not stay."""
    broker = Harness()
    ids = broker.stable_group(rebalance_timeout_ms=1_000_000, session_timeout_ms=1_000_000)
    new = broker.join()
    broker.after(NEW_MEMBER_TIMEOUT_MS - 1)
    assert broker.is_parked(new)
    broker.after(1)
    assert broker.joined(new) == JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID)
    assert [member.member_id for member in broker.group().members] == ids


def test_kafka_12890_the_sync_timer_removes_those_who_never_synchronise_though_they_send_heartbeats():
    """KAFKA-12890; the timer is the longest rebalance timeout, from the end of the join phase."""
    broker = Harness()
    tokens = [broker.join(rebalance_timeout_ms=20_000), broker.join(rebalance_timeout_ms=20_000)]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync(ids[0], 1, [(member_id, b"") for member_id in ids])
    for _ in range(2):
        broker.after(6_000)
        assert [broker.heartbeat(member_id) for member_id in ids] == [ErrorCode.NONE] * 2
    broker.after(7_999)
    assert broker.heartbeat(ids[0]) is ErrorCode.NONE
    broker.after(1)
    assert broker.group().state is PREPARING
    assert [member.member_id for member in broker.group().members] == [ids[0]]
    assert "on pending sync request expiration" in broker.group().reason


@pytest.mark.parametrize("count", [1, 3])
def test_no_sync_timer_remains_when_all_have_synchronised(count):
    broker = Harness()
    ids = broker.stable_group(count)
    for _ in range(20):
        broker.after(5_000)
        assert {broker.heartbeat(member_id) for member_id in ids} == {ErrorCode.NONE}
    assert broker.group().state is GroupState.STABLE


def test_a_heartbeat_costs_one_timer_however_many_come():
    broker = Harness()
    ids = broker.stable_group()
    for _ in range(3_000):
        broker.after(1_000)
        broker.heartbeat(ids[0])
    timers = broker.coordinator._runtime.timers
    assert (len(timers), len(timers._queue)) == (2, 2)  # the session and the retention run


def test_transitions_are_notes_with_their_cause():
    broker = Harness()
    ids = broker.stable_group()
    broker.after(SESSION_MS)
    notes = [
        (note.cause, note.fields["old"], note.fields["new"], note.fields["generation"])
        for note in broker.notes
        if note.kind == "group"
    ]
    assert notes == [
        ("JoinGroup", "Empty", "PreparingRebalance", 0),
        ("InitialRebalanceDelay", "PreparingRebalance", "CompletingRebalance", 1),
        ("Appended", "CompletingRebalance", "Stable", 1),
        ("SessionExpiration", "Stable", "PreparingRebalance", 1),
        ("SessionExpiration", "PreparingRebalance", "Empty", 2),
    ]
    assert ids[0] in str(broker.notes[-2].fields["reason"])


@pytest.mark.parametrize(("error", "warnings"), [(ErrorCode.NONE, []), (ErrorCode.REQUEST_TIMED_OUT, ["warning"])])
def test_that_a_group_is_empty_is_a_warning_only_where_it_could_not_be_written(error, warnings):
    broker = Harness()
    members = broker.stable_group()
    broker.append_error = error
    broker.leave(*members)
    assert [line.level for line in broker.lines if "empty metadata" in line.text] == warnings
