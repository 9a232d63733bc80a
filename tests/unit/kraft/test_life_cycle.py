"""The life of a broker in KRaft mode: which request comes next, and when (BrokerLifecycleManager)."""

from __future__ import annotations

import pytest

from tidegauge_broker.server.cluster.kraft.life_cycle import (
    AFTER_CATCHING_UP_MS,
    ALLOWED,
    NEVER_MS,
    TRANSITIONS,
    Beat,
    BrokerState,
    LifeCycle,
    Register,
)

BEAT_MS, REGISTRATION_MS, DIRECTORY_MS = 2_000, 60_000, 30_000
EPOCH = 87


def started() -> LifeCycle:
    """A broker whose process has begun at 0."""
    life = LifeCycle(BEAT_MS, REGISTRATION_MS, DIRECTORY_MS)
    life.start(0)
    return life


def registered() -> LifeCycle:
    """A broker that was registered at 0."""
    life = started()
    assert life.next_request(0) == Register()
    life.registered(EPOCH, 0)
    return life


def answer(life: LifeCycle, now_ms: int, *, caught_up: bool = True, fenced: bool = True, may_end: bool = False) -> Beat:
    """Let the heartbeat that is due be answered; return it."""
    beat = life.next_request(now_ms)
    assert isinstance(beat, Beat)
    life.beat_answered(is_caught_up=caught_up, is_fenced=fenced, may_shut_down=may_end, now_ms=now_ms)
    return beat


def running() -> LifeCycle:
    """A broker that runs since 10."""
    life = registered()
    answer(life, 0)
    life.ready_to_unfence(5)
    answer(life, 10, fenced=False)
    assert life.state is BrokerState.RUNNING
    return life


def test_a_registration_is_repeated_until_it_is_accepted() -> None:
    """Rule 1: each failure is retried after broker.heartbeat.interval.ms."""
    life = started()
    assert life.next_request(0) == Register()
    assert life.next_request(1) is None, "one request is in flight at a time"
    life.registration_failed(5)
    assert life.next_request(BEAT_MS) is None
    assert life.next_request(5 + BEAT_MS) == Register()
    life.registered(EPOCH, 3_000)
    assert life.broker_epoch == EPOCH
    assert isinstance(life.next_request(3_000), Beat), "a heartbeat follows at once"


def test_a_broker_that_is_not_registered_in_time_ends() -> None:
    """Rule 1: initial.broker.registration.timeout.ms."""
    life = started()
    life.next_request(0)
    life.registration_failed(0)
    assert life.next_request(REGISTRATION_MS) is None
    assert life.state is BrokerState.SHUTTING_DOWN
    assert "initial.broker.registration.timeout.ms" in life.failure


def test_a_registered_broker_has_no_such_limit() -> None:
    life = registered()
    answer(life, 0, caught_up=False)
    assert isinstance(life.next_request(REGISTRATION_MS + 1), Beat)


def test_a_broker_stays_fenced_until_it_has_caught_up_and_its_logs_are_recovered() -> None:
    """Rules 3 and 4."""
    life = registered()
    assert answer(life, 0, caught_up=False) == Beat(True, False, ())
    assert life.state is BrokerState.STARTING
    answer(life, BEAT_MS)
    assert life.state is BrokerState.RECOVERY
    at = BEAT_MS + AFTER_CATCHING_UP_MS
    assert life.deadline_ms() == at
    assert answer(life, at) == Beat(True, False, ()), "its logs are not recovered"
    assert life.state is BrokerState.RECOVERY
    life.ready_to_unfence(at + 50)
    assert life.deadline_ms() == at + 50
    assert answer(life, at + 50) == Beat(False, False, ())
    assert life.state is BrokerState.RECOVERY, "the controller has not unfenced it"
    answer(life, at + 50 + BEAT_MS, fenced=False)
    assert life.state is BrokerState.RUNNING


def test_an_unfencing_that_was_not_asked_for_does_not_count() -> None:
    """The response to a heartbeat that asks to be fenced says nothing of the next one."""
    life = registered()
    answer(life, 0)
    beat = life.next_request(AFTER_CATCHING_UP_MS)
    assert beat == Beat(True, False, ())
    life.ready_to_unfence(11)
    life.beat_answered(is_caught_up=True, is_fenced=False, may_shut_down=False, now_ms=12)
    assert life.state is BrokerState.RECOVERY
    assert life.next_request(12) == Beat(False, False, ()), "what was urgent follows at once"


def test_heartbeats_follow_the_response_and_never_hurry_after_a_failure() -> None:
    """Rule 2: the interval begins with the response, and after a failure it is always whole."""
    life = running()
    assert life.deadline_ms() == 10 + BEAT_MS
    life.next_request(10 + BEAT_MS)
    life.directory_failed("d1", 10 + BEAT_MS)
    life.beat_failed(3_000)
    assert life.next_request(3_000 + BEAT_MS - 1) is None
    assert life.next_request(3_000 + BEAT_MS) == Beat(False, False, ("d1",))


def test_a_running_broker_ends_when_the_controller_lets_it() -> None:
    """Rule 5."""
    life = running()
    life.begin_shutdown(100)
    assert life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert answer(life, 100, fenced=False) == Beat(False, True, ())
    assert life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    answer(life, 100 + BEAT_MS, may_end=True)
    assert life.state is BrokerState.SHUTTING_DOWN
    assert life.deadline_ms() == NEVER_MS
    assert life.next_request(NEVER_MS) is None


def test_a_permission_to_end_that_was_not_asked_for_does_not_count() -> None:
    life = running()
    assert isinstance(life.next_request(10 + BEAT_MS), Beat)
    life.begin_shutdown(10 + BEAT_MS)
    life.beat_answered(is_caught_up=True, is_fenced=False, may_shut_down=True, now_ms=2_100)
    assert life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN


def test_a_broker_that_does_not_run_yet_ends_at_once() -> None:
    """Rule 5: there are no leaders to be moved away."""
    life = registered()
    life.begin_shutdown(5)
    assert life.state is BrokerState.SHUTTING_DOWN
    assert not life.failure


def test_a_failed_directory_must_be_acknowledged_in_time() -> None:
    """Rule 6: log.dir.failure.timeout.ms."""
    life = running()
    life.directory_failed("d1", 20)
    assert answer(life, 20).offline_directories == ("d1",)
    assert life.next_request(20 + DIRECTORY_MS) is not None, "it is acknowledged"
    life = running()
    life.directory_failed("d1", 20)
    life.next_request(20)
    life.beat_failed(20)
    assert life.next_request(20 + DIRECTORY_MS) is None
    assert "log.dir.failure.timeout.ms" in life.failure


def test_the_table_has_each_change_once_and_no_way_back() -> None:
    assert len(ALLOWED) == len(TRANSITIONS)
    order = list(BrokerState)
    assert all(order.index(row.old) < order.index(row.new) for row in TRANSITIONS)


def test_a_change_that_is_not_in_the_table_is_refused() -> None:
    life = started()
    with pytest.raises(AssertionError, match="may not change"):
        life.start(1)
