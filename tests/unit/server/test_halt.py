"""A defect of the core that no partition owns ends the process at once: what the core believes can't be trusted then.

A process that lives on half dead is what no replica's peers can see; one that is dead is replaced by an election.
"""

from __future__ import annotations

import asyncio
import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge_broker.replica.messages import FetchRequest
from tidegauge_broker.server import broker_process
from tidegauge_broker.server.replication.effect_host import Outlets
from tidegauge_broker.server.replication.replica_manager import ReplicaManager


class Broken:
    """A core that fails outside of any partition."""

    def fetch(self, *_: Any) -> Any:
        raise RuntimeError("a purgatory")

    tick = next_round = fetch

    def next_deadline_ms(self) -> int:
        return 0


def manager_of(core: Any, met: asyncio.Event | None = None) -> tuple[ReplicaManager, list[Exception]]:
    logs: Any = SimpleNamespace(offline_directories=[])
    unused: Any = None
    halted: list[Exception] = []

    def halt(problem: Exception) -> None:
        halted.append(problem)
        if met is not None:
            met.set()

    return ReplicaManager(core, logs, unused, lambda: 0, unused, Outlets(halt=halt)), halted


async def test_a_decision_that_fails_halts_the_broker() -> None:
    manager, halted = manager_of(Broken())
    with pytest.raises(RuntimeError):
        await manager.fetch(FetchRequest(-1, 0, 1, 1, []))
    with pytest.raises(RuntimeError):
        manager.next_round(1, None)
    assert [str(problem) for problem in halted] == ["a purgatory"] * 2
    manager.close()


async def test_a_timer_that_fails_halts_the_broker() -> None:
    """Without it no laggard would leave an ISR, and no operation would time out."""
    met = asyncio.Event()
    manager, halted = manager_of(Broken(), met)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    manager.start()
    await asyncio.wait_for(met.wait(), 30)
    assert str(halted[0]) == "a purgatory"
    manager.close()


def test_halting_is_loud_and_leaves_by_its_own_status(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[int] = []
    closed: list[bool] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(logging, "shutdown", lambda: closed.append(True))
    process: Any = SimpleNamespace(
        _identity=SimpleNamespace(broker_id=7), _events=SimpleNamespace(close=lambda: closed.append(True))
    )
    broker_process.BrokerProcess._halt(process, AssertionError("I2"))
    assert left == [broker_process.HALTED] == [70]
    assert closed == [True, True]
    assert "Halting broker 7" in caplog.text
    assert "AssertionError('I2')" in caplog.text
