"""A member's side of a consumer group (AbstractCoordinator, ConsumerCoordinator, Heartbeat of Kafka 3.9)."""

from __future__ import annotations

import math

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.group.commits import (
    AutoCommit,
    CommitFailedError,
    commit_generation,
    commit_problem,
    is_retried,
)
from tidegauge_client.group.effects import (
    Effect,
    Fail,
    FindCoordinator,
    Generation,
    LeaveGroup,
    PrepareJoin,
    SendHeartbeat,
    SendJoin,
    TakeAssignment,
)
from tidegauge_client.group.membership import JoinResponse, Membership, MembershipSettings, MemberState

SESSION_MS, HEARTBEAT_MS, POLL_MS, BACKOFF_MS = 10_000, 3_000, 60_000, 100.0
FIRST = Generation(1, "m-1", "range")
T0 = TopicPartition("t", 0)


def settings(group_instance_id: str | None = None) -> MembershipSettings:
    return MembershipSettings(group_instance_id, SESSION_MS, HEARTBEAT_MS, POLL_MS, BACKOFF_MS)


def found(group_instance_id: str | None = None) -> Membership:
    """A consumer that knows its coordinator."""
    membership = Membership(settings(group_instance_id))
    assert membership.poll_effects(0) == [FindCoordinator()]
    membership.coordinator_found("a:1", 0)
    return membership


def joining(membership: Membership, now_ms: float = 0) -> SendJoin:
    """Give everything up and send JoinGroup."""
    effects = membership.poll_effects(now_ms)
    if effects and isinstance(effects[0], PrepareJoin):
        membership.prepared()
        effects = membership.poll_effects(now_ms)
    [effect] = effects
    assert isinstance(effect, SendJoin)
    return effect


def stable(group_instance_id: str | None = None, *, leads: bool = False) -> Membership:
    """A member that has taken its first assignment at 0 ms."""
    membership = found(group_instance_id)
    sent = joining(membership).generation
    leader = FIRST.member_id if leads else "another"
    assert membership.joined(JoinResponse(ErrorCode.NONE, "", 1, FIRST.member_id, "range", leader), sent, 0)
    if leads:
        membership.assigned_as_leader({"t": 2})
    membership.synchronised(FIRST, b"assignment", 0)
    assert membership.poll_effects(0) == [TakeAssignment(FIRST, b"assignment")]
    return membership


def names(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_a_coordinator_is_looked_up_once_at_a_time_and_again_after_the_back_off() -> None:
    membership = Membership(settings())
    assert membership.poll_effects(0) == [FindCoordinator()]
    assert membership.poll_effects(1) == [], "one request is in flight"
    membership.coordinator_not_found(TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE), 2)
    assert membership.poll_effects(50) == []
    assert membership.poll_due_ms(50) == 2 + BACKOFF_MS
    assert membership.poll_effects(102) == [FindCoordinator()]


def test_an_error_that_does_not_pass_is_raised_in_every_poll() -> None:
    membership = Membership(settings())
    membership.poll_effects(0)
    problem = TidegaugeError(ErrorCode.INVALID_GROUP_ID)
    membership.coordinator_not_found(problem, 0)
    assert membership.poll_effects(1) == membership.poll_effects(1_000) == [Fail(problem)]


def test_a_first_join_is_sent_again_at_once_with_the_id_that_was_given() -> None:
    """KIP-394: MEMBER_ID_REQUIRED needs no back-off, and no second preparation."""
    membership = found()
    first = joining(membership)
    assert first.generation == Generation()
    required = JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1")
    assert not membership.joined(required, first.generation, 5)
    [again] = membership.poll_effects(5)
    assert isinstance(again, SendJoin)
    assert again.generation.member_id == "m-1"
    assert "m-1" in again.reason


def test_partitions_are_lost_without_a_generation_and_revoked_with_one() -> None:
    """ConsumerCoordinator.onJoinPrepare: a member that was reset may not own anything any more."""
    membership = stable()
    membership.request_rejoin("because")
    assert membership.poll_effects(1) == [PrepareJoin(is_lost=False)]
    assert membership.poll_effects(1) == [], "the first one is not done"
    membership.prepared()

    reset = stable()
    reset.heartbeat_done(FIRST, ErrorCode.UNKNOWN_MEMBER_ID, "", 1)
    assert reset.poll_effects(1) == [PrepareJoin(is_lost=True)]


def test_a_preparation_that_outlasts_its_poll_goes_on_in_the_next_one() -> None:
    membership = stable()
    membership.request_rejoin("because")
    assert names(membership.poll_effects(1)) == ["PrepareJoin"]
    membership.prepared(is_done=False)
    assert names(membership.poll_effects(2)) == ["PrepareJoin"]
    membership.prepared()
    assert names(membership.poll_effects(3)) == ["SendJoin"]


def test_heartbeats_begin_with_the_response_to_the_join_and_keep_their_interval() -> None:
    membership = found()
    sent = joining(membership).generation
    assert membership.background_due_ms() == math.inf, "none while the JoinGroup is in flight"
    membership.joined(JoinResponse(ErrorCode.NONE, "", 1, "m-1", "range", "x"), sent, 1_000)
    assert membership.background_due_ms() == 1_000 + HEARTBEAT_MS
    assert membership.background_effects(3_999) == []
    assert membership.background_effects(4_000) == [SendHeartbeat(FIRST)]
    assert membership.background_effects(9_000) == [], "one at a time"
    membership.heartbeat_done(FIRST, ErrorCode.NONE, "", 9_000)
    assert membership.background_effects(9_000) == [SendHeartbeat(FIRST)], "7000 was the next one"


def test_a_rebalance_is_learnt_from_a_heartbeat_and_only_when_stable() -> None:
    membership = stable()
    membership.heartbeat_done(FIRST, ErrorCode.REBALANCE_IN_PROGRESS, "", 3_000)
    assert membership.is_rejoin_needed
    assert membership.rejoin_because == "group is already rebalancing"

    completing = found()
    sent = joining(completing).generation
    completing.joined(JoinResponse(ErrorCode.NONE, "", 1, "m-1", "range", "x"), sent, 0)
    completing.heartbeat_done(FIRST, ErrorCode.REBALANCE_IN_PROGRESS, "", 3_000)
    completing.synchronised(FIRST, b"", 3_001)
    assert not completing.is_rejoin_needed


def test_a_coordinator_that_is_silent_for_the_session_timeout_is_looked_up_again() -> None:
    membership = stable()
    membership.poll_effects(HEARTBEAT_MS)
    assert names(membership.background_effects(HEARTBEAT_MS)) == ["SendHeartbeat"]
    assert membership.background_due_ms() == SESSION_MS, "the response is awaited so long"
    assert membership.background_effects(SESSION_MS) == [FindCoordinator()]
    assert membership.state is MemberState.STABLE, "the group may know the member still"
    membership.coordinator_found("b:1", SESSION_MS + 5)
    assert names(membership.background_effects(SESSION_MS + 5)) == ["SendHeartbeat"]


def test_a_moved_coordinator_is_rediscovered_and_the_member_stays() -> None:
    membership = stable()
    membership.heartbeat_done(FIRST, ErrorCode.NOT_COORDINATOR, "", 3_000)
    assert membership.coordinator is None
    assert membership.background_effects(3_000) == [FindCoordinator()]
    membership.coordinator_found("b:1", 3_050)
    assert membership.background_effects(3_100) == [SendHeartbeat(FIRST)], "after the back-off"
    assert not membership.is_rejoin_needed


@pytest.mark.parametrize(
    ("error", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m-1")]
)
def test_what_a_removed_member_keeps(error: ErrorCode, member_id: str) -> None:
    """ILLEGAL_GENERATION leaves the member its id (KAFKA-13891: resetStateOnResponseError)."""
    membership = stable()
    membership.heartbeat_done(FIRST, error, "", 3_000)
    assert membership.generation == Generation(member_id=member_id)
    assert membership.state is MemberState.UNJOINED
    assert membership.is_rejoin_needed


def test_an_error_of_an_earlier_generation_changes_nothing() -> None:
    membership = stable()
    membership.heartbeat_done(Generation(0, "m-0", "range"), ErrorCode.UNKNOWN_MEMBER_ID, "", 3_000)
    assert membership.generation == FIRST
    assert not membership.is_rejoin_needed


def test_a_fenced_static_member_fails_in_poll() -> None:
    membership = stable("instance-1")
    membership.heartbeat_done(FIRST, ErrorCode.FENCED_INSTANCE_ID, "", 3_000)
    [effect] = membership.poll_effects(3_001)
    assert isinstance(effect, Fail)
    assert effect.problem.code is ErrorCode.FENCED_INSTANCE_ID
    assert "instance-1" in effect.problem.message
    assert membership.background_due_ms() == math.inf


def test_without_polls_a_dynamic_member_leaves_and_a_static_one_goes_silent() -> None:
    """KIP-62 and KIP-345: max.poll.interval.ms."""
    for instance, expected in ((None, ["LeaveGroup"]), ("instance-1", [])):
        membership = stable(instance)
        for now_ms in range(HEARTBEAT_MS, POLL_MS, HEARTBEAT_MS):
            assert names(membership.background_effects(now_ms)) == ["SendHeartbeat"]
            membership.heartbeat_done(FIRST, ErrorCode.NONE, "", now_ms)
        assert names(membership.background_effects(POLL_MS)) == expected
        assert membership.state is MemberState.UNJOINED
        assert membership.background_due_ms() == math.inf
        assert membership.poll_effects(POLL_MS + 1) == [PrepareJoin(is_lost=True)]


def test_each_poll_restarts_the_poll_interval() -> None:
    membership = stable()
    membership.poll_effects(POLL_MS - 1)
    membership.heartbeat_done(FIRST, ErrorCode.NONE, "", POLL_MS - 1)
    assert "LeaveGroup" not in names(membership.background_effects(POLL_MS))


def test_a_failed_join_backs_off_unless_the_group_asks_for_another() -> None:
    for error, at_once in (
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, True),
    ):
        membership = found()
        sent = joining(membership).generation
        membership.join_failed(error, "", sent, 10)
        assert bool(membership.poll_effects(10)) is at_once, error
        assert names(membership.poll_effects(10 + BACKOFF_MS)) in (["SendJoin"], []), error


def test_a_join_that_breaks_off_finds_the_coordinator_again() -> None:
    membership = found()
    sent = joining(membership).generation
    membership.join_failed(ErrorCode.NETWORK_EXCEPTION, "broken", sent, 10)
    assert membership.trouble is not None
    assert membership.poll_effects(10) == [FindCoordinator()]
    membership.coordinator_found("b:1", 20)
    assert membership.poll_effects(20) == [], "the back-off"
    assert membership.poll_due_ms(20) == 10 + BACKOFF_MS
    assert names(membership.poll_effects(110)) == ["SendJoin"]


def test_errors_of_the_settings_are_raised() -> None:
    for error in (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ):
        membership = found()
        membership.join_failed(error, "why", joining(membership).generation, 10)
        [effect] = membership.poll_effects(11)
        assert isinstance(effect, Fail)
        assert effect.problem.code is error


def test_an_assignment_of_a_generation_that_was_left_is_not_taken() -> None:
    membership = found()
    sent = joining(membership).generation
    membership.joined(JoinResponse(ErrorCode.NONE, "", 1, "m-1", "range", "x"), sent, 0)
    membership.heartbeat_done(FIRST, ErrorCode.UNKNOWN_MEMBER_ID, "", 1)
    membership.synchronised(FIRST, b"late", 2)
    assert membership.poll_effects(2) == [PrepareJoin(is_lost=True)]


def test_what_a_member_kept_for_a_rebalance_is_lost_when_it_is_removed_in_it() -> None:
    """KIP-429 (AbstractCoordinator.resetStateAndRejoin: needsJoinPrepare): the next JoinGroup claims nothing."""
    for error, prepares_again in ((ErrorCode.UNKNOWN_MEMBER_ID, True), (ErrorCode.REBALANCE_IN_PROGRESS, False)):
        membership = stable()
        membership.request_rejoin("because")
        membership.poll_effects(1)
        membership.prepared()
        [join] = membership.poll_effects(1)
        assert isinstance(join, SendJoin)
        membership.join_failed(error, "", join.generation, 2)
        [effect] = membership.poll_effects(3)
        assert effect == PrepareJoin(is_lost=True) if prepares_again else isinstance(effect, SendJoin)


def test_a_leader_rejoins_when_the_partitions_of_the_group_change_and_a_follower_does_not() -> None:
    for leads in (True, False):
        membership = stable(leads=leads)
        membership.partitions_seen({"t": 2})
        assert not membership.is_rejoin_needed
        membership.partitions_seen({"t": 3})
        assert membership.is_rejoin_needed is leads


def test_leaving_tells_the_coordinator_of_dynamic_members_only() -> None:
    """KIP-345: a static member that is closed comes back without a rebalance."""
    assert stable().leave("closed") == [LeaveGroup(FIRST, "closed")]
    assert stable("instance-1").leave("closed") == []
    assert found().leave("closed") == [], "it never joined"


# Commits


def test_a_member_commits_in_its_generation_and_not_while_it_rebalances() -> None:
    assert commit_generation(stable(), is_subscribed=True) == FIRST
    assert commit_generation(found(), is_subscribed=False) == Generation(), "a simple consumer"
    with pytest.raises(CommitFailedError, match="not part of an active group"):
        commit_generation(found(), is_subscribed=True)
    rebalancing = found()
    joining(rebalancing)
    with pytest.raises(TidegaugeError) as raised:
        commit_generation(rebalancing, is_subscribed=True)
    assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert not is_retried(raised.value)


def test_a_commit_on_revocation_is_sent_in_the_old_generation() -> None:
    membership = stable()
    membership.heartbeat_done(FIRST, ErrorCode.REBALANCE_IN_PROGRESS, "", 3_000)
    membership.poll_effects(3_001)
    assert commit_generation(membership, is_subscribed=True) == FIRST


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_of_a_removed_member_fails_and_it_joins_again(error: ErrorCode) -> None:
    membership = stable()
    problem = commit_problem(membership, FIRST, {T0: (error, "")})
    assert isinstance(problem, CommitFailedError)
    assert "max.poll.interval.ms" in problem.message
    assert membership.state is MemberState.UNJOINED


def test_a_late_error_of_a_commit_does_not_reset_a_member_that_joins_again() -> None:
    """KAFKA-8104: the member has another generation by then."""
    membership = found()
    sent = joining(membership).generation
    membership.joined(JoinResponse(ErrorCode.NONE, "", 2, "m-2", "range", "x"), sent, 0)
    problem = commit_problem(membership, FIRST, {T0: (ErrorCode.ILLEGAL_GENERATION, "")})
    assert problem is not None
    assert problem.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert membership.generation.number == 2


def test_a_commit_learns_of_a_rebalance_and_of_a_moved_coordinator() -> None:
    membership = stable()
    problem = commit_problem(membership, FIRST, {T0: (ErrorCode.REBALANCE_IN_PROGRESS, "")})
    assert problem is not None
    assert membership.is_rejoin_needed
    for error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT):
        moved = stable()
        problem = commit_problem(moved, FIRST, {T0: (error, "")})
        assert problem is not None
        assert is_retried(problem)
        assert moved.coordinator is None


def test_one_partition_that_fails_fails_the_commit() -> None:
    errors = {T0: (ErrorCode.NONE, ""), TopicPartition("t", 1): (ErrorCode.OFFSET_METADATA_TOO_LARGE, "")}
    problem = commit_problem(stable(), FIRST, errors)
    assert problem is not None
    assert problem.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert "t-1" in problem.message
    assert commit_problem(stable(), FIRST, {T0: (ErrorCode.NONE, "")}) is None


def test_auto_commit_keeps_its_interval_and_retries_soon_what_is_worth_it() -> None:
    """ConsumerCoordinator.maybeAutoCommitOffsetsAsync."""
    timer = AutoCommit(5_000, BACKOFF_MS)
    timer.restart(0)
    assert not timer.is_due(4_999)
    assert timer.is_due(5_000)
    timer.restart(5_000)
    timer.failed(TidegaugeError(ErrorCode.NOT_COORDINATOR), 5_010)
    assert timer.is_due(5_110)
    timer.restart(5_110)
    timer.failed(CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID), 5_120)
    assert not timer.is_due(10_000)

    off = AutoCommit(None, BACKOFF_MS)
    off.restart(0)
    assert not off.is_due(1e12)
