"""The lifecycle of a broker in KRaft mode: which request comes next, and when (BrokerLifecycleManager)."""

from __future__ import annotations

import pytest

from tidegauge_broker.server.cluster.kraft.lifecycle import (
    ALLOWED,
    NEVER_MS,
    TRANSITIONS,
    WHILE_STARTING_MS,
    Beat,
    BrokerState,
    Lifecycle,
    Register,
)

BEAT_MS, REGISTRATION_MS, DIRECTORY_MS = 2_000, 60_000, 30_000
EPOCH = 87


def started() -> Lifecycle:
    """A broker whose process has begun at 0."""
    cycle = Lifecycle(BEAT_MS, REGISTRATION_MS, DIRECTORY_MS)
    cycle.start(0)
    return cycle


def registered() -> Lifecycle:
    """A broker that was registered at 0."""
    cycle = started()
    assert cycle.next_request(0) == Register()
    cycle.registered(EPOCH, 0)
    return cycle


def state_of(cycle: Lifecycle) -> BrokerState:
    """The broker's state, which each call may change."""
    return cycle.state


def respond(
    cycle: Lifecycle, now_ms: int, *, caught_up: bool = True, fenced: bool = True, may_end: bool = False
) -> Beat:
    """Let the heartbeat that is due be responded to; return it."""
    beat = cycle.next_request(now_ms)
    assert isinstance(beat, Beat)
    cycle.beat_responded(is_caught_up=caught_up, is_fenced=fenced, may_shut_down=may_end, now_ms=now_ms)
    return beat


def running() -> Lifecycle:
    """A broker that runs since 10."""
    cycle = registered()
    respond(cycle, 0)
    cycle.ready_to_unfence(5)
    respond(cycle, 10, fenced=False)
    assert state_of(cycle) is BrokerState.RUNNING
    return cycle


def test_a_registration_is_repeated_until_it_is_accepted() -> None:
    """Rule 1: each failure is retried after broker.heartbeat.interval.ms."""
    cycle = started()
    assert cycle.next_request(0) == Register()
    assert cycle.next_request(1) is None, "one request is in flight at a time"
    cycle.registration_failed(5)
    assert cycle.next_request(BEAT_MS) is None
    assert cycle.next_request(5 + BEAT_MS) == Register()
    cycle.registered(EPOCH, 3_000)
    assert cycle.broker_epoch == EPOCH
    assert isinstance(cycle.next_request(3_000), Beat), "a heartbeat follows at once"


def test_a_broker_that_is_not_registered_in_time_ends() -> None:
    """Rule 1: initial.broker.registration.timeout.ms."""
    cycle = started()
    cycle.next_request(0)
    cycle.registration_failed(0)
    assert cycle.next_request(REGISTRATION_MS) is None
    assert state_of(cycle) is BrokerState.SHUTTING_DOWN
    assert "initial.broker.registration.timeout.ms" in cycle.failure


def test_a_registered_broker_has_no_such_limit() -> None:
    cycle = registered()
    respond(cycle, 0, caught_up=False)
    assert isinstance(cycle.next_request(REGISTRATION_MS + 1), Beat)


def test_a_broker_stays_fenced_until_it_has_caught_up_and_its_logs_are_recovered() -> None:
    """Rules 3 and 4."""
    cycle = registered()
    assert respond(cycle, 0, caught_up=False) == Beat(True, False, ())
    assert state_of(cycle) is BrokerState.STARTING
    respond(cycle, WHILE_STARTING_MS)
    assert state_of(cycle) is BrokerState.RECOVERY
    at = 2 * WHILE_STARTING_MS
    assert cycle.deadline_ms() == at
    assert respond(cycle, at) == Beat(True, False, ()), "its logs are not recovered"
    assert state_of(cycle) is BrokerState.RECOVERY
    cycle.ready_to_unfence(at + 50)
    assert cycle.deadline_ms() == at + 50
    assert respond(cycle, at + 50) == Beat(False, False, ())
    assert state_of(cycle) is BrokerState.RECOVERY, "the controller has not unfenced it"
    respond(cycle, at + 50 + BEAT_MS, fenced=False)
    assert state_of(cycle) is BrokerState.RUNNING


def test_an_unfencing_that_was_not_asked_for_does_not_count() -> None:
    """The response to a heartbeat that asks to be fenced says nothing of the next one."""
    cycle = registered()
    respond(cycle, 0)
    beat = cycle.next_request(WHILE_STARTING_MS)
    assert beat == Beat(True, False, ())
    cycle.ready_to_unfence(11)
    cycle.beat_responded(is_caught_up=True, is_fenced=False, may_shut_down=False, now_ms=12)
    assert state_of(cycle) is BrokerState.RECOVERY
    assert cycle.next_request(12) == Beat(False, False, ()), "what was urgent follows at once"


def test_heartbeats_follow_the_response_and_never_hurry_after_a_failure() -> None:
    """Rule 2: the interval begins with the response, and after a failure it is always whole."""
    cycle = running()
    assert cycle.deadline_ms() == 10 + BEAT_MS
    cycle.next_request(10 + BEAT_MS)
    cycle.directory_failed("d1", 10 + BEAT_MS)
    cycle.beat_failed(3_000)
    assert cycle.next_request(3_000 + BEAT_MS - 1) is None
    assert cycle.next_request(3_000 + BEAT_MS) == Beat(False, False, ("d1",))


def test_a_running_broker_ends_when_the_controller_lets_it() -> None:
    """Rule 5."""
    cycle = running()
    cycle.begin_shutdown(100)
    assert state_of(cycle) is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert respond(cycle, 100, fenced=False) == Beat(False, True, ())
    assert state_of(cycle) is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    respond(cycle, 100 + BEAT_MS, may_end=True)
    assert state_of(cycle) is BrokerState.SHUTTING_DOWN
    assert cycle.deadline_ms() == NEVER_MS
    assert cycle.next_request(NEVER_MS) is None


def test_a_permission_to_end_that_was_not_asked_for_does_not_count() -> None:
    cycle = running()
    assert isinstance(cycle.next_request(10 + BEAT_MS), Beat)
    cycle.begin_shutdown(10 + BEAT_MS)
    cycle.beat_responded(is_caught_up=True, is_fenced=False, may_shut_down=True, now_ms=2_100)
    assert state_of(cycle) is BrokerState.PENDING_CONTROLLED_SHUTDOWN


def test_a_broker_that_does_not_run_yet_ends_at_once() -> None:
    """Rule 5: there are no leaders to be moved away."""
    cycle = registered()
    cycle.begin_shutdown(5)
    assert state_of(cycle) is BrokerState.SHUTTING_DOWN
    assert not cycle.failure


def test_a_failed_directory_must_be_acknowledged_in_time() -> None:
    """Rule 6: log.dir.failure.timeout.ms."""
    cycle = running()
    cycle.directory_failed("d1", 20)
    assert respond(cycle, 20).offline_directories == ("d1",)
    assert cycle.next_request(20 + DIRECTORY_MS) is not None, "it is acknowledged"
    cycle = running()
    cycle.directory_failed("d1", 20)
    cycle.next_request(20)
    cycle.beat_failed(20)
    assert cycle.next_request(20 + DIRECTORY_MS) is None
    assert "log.dir.failure.timeout.ms" in cycle.failure


def test_a_broker_that_asks_to_be_fenced_once_comes_back_with_the_next_heartbeat() -> None:
    """The controller fences a broker that wants it (BrokerHeartbeatManager.calculateNextBrokerState)."""
    cycle = running()
    cycle.fence_once(20)
    assert respond(cycle, 20) == Beat(True, False, ())
    assert cycle.is_fenced
    assert respond(cycle, 20 + BEAT_MS, fenced=False) == Beat(False, False, ())
    assert state_of(cycle) is BrokerState.RUNNING


def test_the_table_has_each_change_once_and_no_way_back() -> None:
    assert len(ALLOWED) == len(TRANSITIONS)
    order = list(BrokerState)
    assert all(order.index(row.old) < order.index(row.new) for row in TRANSITIONS)


def test_a_change_that_is_not_in_the_table_is_refused() -> None:
    cycle = started()
    with pytest.raises(AssertionError, match="may not change"):
        cycle.start(1)
