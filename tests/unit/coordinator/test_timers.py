"""A turn of the timers runs those that were due when it began, and so always ends."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, Harness

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupState, LeavingMember
from tidegauge_broker.coordinator.effects import LogLine
from tidegauge_broker.coordinator.group import phases
from tidegauge_broker.coordinator.group.phases import MIN_REPEATED_PHASE_MS
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.timers import Timers


def turn(timers: Timers, now_ms: int) -> list[str]:
    """Run a turn, and return the causes of the timers that ran."""
    causes: list[str] = []
    timers.begin_turn(now_ms)
    while (expired := timers.take_expired(now_ms)) is not None:
        causes.append(expired.cause)
        expired.action()
    return causes


def test_a_timer_that_starts_one_due_at_once_leaves_it_to_the_next_turn() -> None:
    timers = Timers()

    def again() -> None:
        timers.start(0, "again", again)

    timers.start(5, "first", again)
    assert turn(timers, 10) == ["first"]
    assert timers.next_deadline_ms() == 0
    assert turn(timers, 10) == ["again"]
    assert len(timers) == 1


def test_what_an_earlier_timer_of_the_turn_cancels_or_postpones_does_not_run() -> None:
    timers = Timers()
    cancelled = timers.start(2, "cancelled", list)
    postponed = timers.start(3, "postponed", list)
    timers.start(1, "first", lambda: (timers.cancel(cancelled), timers.postpone(postponed, 20)))
    timers.start(4, "last", list)
    assert turn(timers, 10) == ["first", "last"]
    assert timers.next_deadline_ms() == 20
    assert turn(timers, 20) == ["postponed"]
    assert len(timers) == 0


def test_a_turn_that_was_interrupted_is_ended_by_the_next() -> None:
    timers = Timers()
    timers.start(1, "first", list)
    timers.start(2, "second", list)
    timers.begin_turn(10)
    assert timers.take_expired(10) is not None
    assert timers.next_deadline_ms() == 2
    assert turn(timers, 10) == ["second"]


def static_group(broker: Harness) -> None:
    """Two static members, Stable, which have come again with a rebalance timeout of 0 (KIP-345: no rebalance)."""
    tokens = [broker.join(group_instance_id=one) for one in ("a", "b")]
    broker.after(2 * INITIAL_DELAY_MS)
    broker.sync_all([broker.joined(token).member_id for token in tokens])
    for one in ("a", "b"):
        again = broker.joined(broker.join(group_instance_id=one, rebalance_timeout_ms=0))
        assert (again.error, again.generation) == (ErrorCode.NONE, 1)


def test_static_members_with_a_rebalance_timeout_of_0_leave_the_coordinator_alive() -> None:
    """onCompleteJoin begins again if no member has joined; here each phase ends in a turn of its own."""
    broker = Harness()
    static_group(broker)
    broker.leave(LeavingMember("", "b"))
    assert broker.group().state is GroupState.PREPARING_REBALANCE
    broker.after(0)
    deadline_ms = broker.group().phase_deadline_ms
    assert deadline_ms == broker.now_ms + MIN_REPEATED_PHASE_MS, "the repeated phase does not keep the event loop busy"
    broker.after(1_000)
    said = [line for line in broker.lines if "no members rejoined" in line.text]
    assert said == [LogLine("error", "Group g could not complete rebalance because no members rejoined")]
    rejoined = broker.join(broker.group().leader or "", group_instance_id="a", rebalance_timeout_ms=0)
    assert broker.joined(rejoined).generation == 2


def test_a_step_takes_only_the_timers_that_were_due_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a join phase that begins again at once, as Kafka's does, would hold the event loop for ever."""
    monkeypatch.setattr(phases, "MIN_REPEATED_PHASE_MS", 0)
    broker = Harness()
    static_group(broker)
    broker.leave(LeavingMember("", "b"))
    for _ in range(3):
        broker.carry_out(broker.coordinator.step(broker.now_ms))
        assert broker.coordinator.next_deadline_ms() == broker.now_ms
    assert len([line for line in broker.lines if "no members rejoined" in line.text]) == 3


def test_a_static_member_whose_session_ends_leaves_the_coordinator_and_the_next_one_alive() -> None:
    """The members are in __consumer_offsets, so that each coordinator that loads them goes the same way."""
    broker = Harness()
    static_group(broker)
    for coordinator in (broker.successor(), broker):
        coordinator.after(2 * SESSION_MS)
        assert coordinator.group().members == ()


def test_the_generation_after_the_largest_is_1() -> None:
    """In Kafka it becomes negative; a record has an int32."""
    broker = Harness()
    (member,) = broker.stable_group()
    group = broker.coordinator._shards[0].groups["g"]
    group.generation = 2**31 - 1
    token = broker.join(member)
    assert broker.joined(token).generation == 1
    broker.sync_all([member], 1)
    assert broker.successor().group().generation == 1


def test_the_owners_of_the_timers_that_are_due_are_known_before_they_run() -> None:
    """By them the shell tells whether a turn of the timers is about very much."""
    timers = Timers()
    for due_ms in (50, 10, 40, 30, 20, 60, 5):
        timers.start(due_ms, "Session", lambda: None, Owner(0, f"g{due_ms}"))
    owners = [owner.key for owner in timers.due_owners(30) if owner is not None]
    assert sorted(owners) == ["g10", "g20", "g30", "g5"]
    assert not list(timers.due_owners(4))
