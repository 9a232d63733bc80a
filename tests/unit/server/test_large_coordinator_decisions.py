"""Decisions of coordinators about very much are made beside the event loop, in their order (``CoordinatorRunner``)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.test_group_runner import AT as OFFSETS
from tests.unit.server.test_group_runner import NOW_MS, Replicas, halted, turns
from tests.unit.server.test_share_runner import AT, KEY, TOPIC, ShareReplicas, elected, event_log, settings

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import (
    InitializeShareState,
    ReadShareState,
    ShareGroupHeartbeat,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.sizes import LARGE_FROM_ITEMS
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.coordinators.share_runner import ShareRunner

MANY = LARGE_FROM_ITEMS
BATCHES = tuple(StateBatch(one, one, one % 2 * 2, 1) for one in range(MANY))
LARGE_RECORD = tuple(StateBatch(one, one, one % 2 * 2, 1) for one in range(4 * MANY))


class Threads:
    """Notes which events a runner's coordinator takes beside the event loop, and lets them wait there."""

    def __init__(self, runner: Any) -> None:
        self.beside: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._decided: Callable[[Any], Any] = runner._decided
        runner._decided = self.decided

    def decided(self, event: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            self.beside.append(type(event).__name__)
            self.may_go_on.wait()
        return self._decided(event)


@pytest.fixture
async def states() -> Any:
    replicas: Any = ShareReplicas()
    runner = ShareRunner(settings(), replicas, event_log(), lambda: NOW_MS, halted)
    runner.topics_sent({"t": TopicDescription("t", TOPIC, ((), ()))})
    await elected(runner)
    begun = runner.request(InitializeShareState(KEY, 2))
    replicas.commit()
    await begun
    yield runner, replicas, Threads(runner)
    await runner.close()


async def appended(replicas: Replicas) -> None:
    """Wait until something waits for its commit."""
    while not replicas.appends:  # noqa: ASYNC110 - a thread decides meanwhile
        await asyncio.sleep(0)


async def test_a_large_write_is_decided_beside_the_loop_and_takes_effect_there(states: Any) -> None:
    runner, replicas, threads = states
    writing = runner.request(WriteShareState(KEY, 2, 0, 0, 0, LARGE_RECORD))
    await appended(replicas)
    replicas.commit()
    assert (await writing).error is ErrorCode.NONE
    assert threads.beside == ["ShareStateRequestArrived", "Appended"]
    read = await runner.request(ReadShareState(KEY))
    assert read.batches == LARGE_RECORD
    assert threads.beside[2:] == ["ShareStateRequestArrived"], "the request is small, the state is not"


async def test_a_small_write_stays_on_the_loop(states: Any) -> None:
    runner, replicas, threads = states
    writing = runner.request(WriteShareState(KEY, 2, 0, 0, 0, BATCHES[:-1]))
    replicas.commit()
    assert (await writing).error is ErrorCode.NONE
    assert not threads.beside


async def test_later_requests_wait_for_a_large_decision_and_the_loop_does_not(states: Any) -> None:
    """One event at a time: the read that came after the write meets its state."""
    runner, replicas, threads = states
    threads.may_go_on.clear()
    writing = runner.request(WriteShareState(KEY, 2, 0, 0, 0, BATCHES))
    reading = runner.request(ReadShareState(KEY))
    await turns()
    assert (writing.done(), reading.done()) == (False, False)
    assert runner.at_rest.locked()
    threads.may_go_on.set()
    await appended(replicas)
    replicas.commit()
    assert (await reading).batches == BATCHES


async def test_a_decision_made_under_a_leadership_that_ended_meanwhile_is_not_written(states: Any) -> None:
    """It rests on a state that another leader may have changed (CoordinatorRuntime fails queued writes)."""
    runner, replicas, threads = states
    threads.may_go_on.clear()
    writing = runner.request(WriteShareState(KEY, 2, 0, 0, 0, BATCHES))
    await turns()
    runner.leadership_changed(AT, leads=False, leader_epoch=4)
    runner.leadership_changed(AT, leads=True, leader_epoch=5)
    threads.may_go_on.set()
    assert await writing == ShareStateResult(ErrorCode.NOT_COORDINATOR)
    assert not replicas.appends
    read = runner.request(ReadShareState(KEY))
    assert (await read).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_the_decisions_about_a_group_of_many_names_stay_beside_the_loop_and_so_do_its_timers() -> None:
    replicas: Any = Replicas()
    now_ms = NOW_MS
    runner = GroupRunner(settings(), replicas, event_log(), lambda: now_ms, halted)
    runner.leadership_changed(OFFSETS, leads=True, leader_epoch=3)
    await turns()
    threads = Threads(runner)
    names = tuple(f"t{one}" for one in range(MANY))
    joining = runner.request(ShareGroupHeartbeat("g", "0123456789012345678901", 0, None, names))
    await appended(replicas)
    replicas.commit()
    joined: Any = await joining
    assert (joined.error, threads.beside) == (ErrorCode.NONE, ["RequestArrived"])
    beating: Any = runner.request(ShareGroupHeartbeat("g", "0123456789012345678901", joined.member_epoch))
    other: Any = runner.request(ShareGroupHeartbeat("h", "0123456789012345678902", 0, None, ("t",)))
    assert (beating.done(), other.done()) == (False, False)
    assert (await beating).error is ErrorCode.NONE
    assert threads.beside == ["RequestArrived"] * 2
    await appended(replicas)
    replicas.commit()
    assert (await other).error is ErrorCode.NONE
    assert threads.beside == ["RequestArrived"] * 2, "a small group's are not"
    now_ms += 1_000_000
    runner._put(None)
    await appended(replicas)
    assert threads.beside == [*["RequestArrived"] * 2, "NoneType"], "its session has ended"
    await runner.close()
