"""``restore``: it ends everything that is in force, or raises (aio.py rule 3)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import lab_pb2
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.pytest_plugin.aio import AsyncCluster
from tidegauge_lab.switches import Fault, Switches


class Cluster(AsyncCluster):
    """Brokers 0 and 1, of which one does not end its faults; notes the faults of processes."""

    def __init__(self, problem: ErrorCode, state_of_1: ProcessState = ProcessState.UP) -> None:
        self.done: list[str] = []
        self.states = {0: ProcessState.UP, 1: ProcessState.UP}
        brokers = [SimpleNamespace(id=0), SimpleNamespace(id=1)]

        def up() -> None:
            self.done.append("up")
            self.states |= dict.fromkeys(self.states, ProcessState.UP)

        def stop(*ids: int) -> None:
            self.done.append(f"stop {ids}")
            self.states |= dict.fromkeys(ids, ProcessState.DOWN)

        local: Any = SimpleNamespace(
            file=SimpleNamespace(brokers=brokers),
            processes=lambda: self.states,
            state_of=self.states.__getitem__,
            up=up,
            wait_ready=lambda: self.done.append("wait_ready"),
            stop=stop,
        )
        super().__init__(local, [])
        self._problem, self._state_of_1 = problem, state_of_1

    async def clear_faults(self, *brokers: int) -> int:
        if brokers == (1,):
            self.states[1] = self._state_of_1
            raise TidegaugeError(self._problem, "a sentence")
        return 0


@pytest.mark.parametrize("problem", [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_a_broker_that_does_not_end_its_faults_fails_the_restore(problem: ErrorCode) -> None:
    """The next test would meet the faults of the one before."""
    with pytest.raises(TidegaugeError, match="a sentence"):
        asyncio.run(Cluster(problem).restore())


def test_a_broker_without_switches_has_no_faults() -> None:
    cluster = Cluster(ErrorCode.UNSUPPORTED_VERSION)
    asyncio.run(cluster.restore())
    assert cluster.done == [], "nothing was wrong"


def test_a_broker_that_ends_meanwhile_is_started() -> None:
    cluster = Cluster(ErrorCode.BROKER_NOT_AVAILABLE, ProcessState.DOWN)
    asyncio.run(cluster.restore())
    assert cluster.done == ["up"]


class Switched(Cluster):
    """Its brokers have the faults that it is given, as ``AsyncCluster`` itself ends them."""

    clear_faults = AsyncCluster.clear_faults


def fault(broker: int, met: int = 1, **disk: Any) -> Fault:
    message = lab_pb2.LabFault(disk=lab_pb2.DiskFault(**disk)) if disk else lab_pb2.LabFault()
    return Fault(broker, 1, "a fault", met, 0, message)


@pytest.mark.parametrize(
    ("ended", "restarted"),
    [
        ([fault(1, errno_name="EIO")], ["stop (1,)", "up"]),
        ([fault(0, errno_name="ENOSPC"), fault(1, errno_name="EIO")], ["stop (0, 1)", "up"]),
        ([fault(1, met=0, errno_name="EIO")], ["wait_ready"]),
        ([fault(1, delay_ms=20)], ["wait_ready"]),
        ([fault(1)], ["wait_ready"]),
    ],
)
def test_a_broker_whose_disk_has_failed_is_restarted(
    monkeypatch: pytest.MonkeyPatch, ended: list[Fault], restarted: list[str]
) -> None:
    """A failed log directory is offline until then; with its last one the broker is about to end by itself."""

    async def clear(_: Switches, broker: int, **__: object) -> tuple[list[Fault], list[object]]:
        return [one for one in ended if one.broker_id == broker], []

    monkeypatch.setattr(Switches, "clear", clear)
    monkeypatch.setattr(Switches, "of_cluster", lambda _: Switches({}))
    cluster = Switched(ErrorCode.NONE)
    asyncio.run(cluster.restore())
    assert cluster.done == restarted
    cluster.done.clear()
    ended.clear()
    asyncio.run(cluster.restore())
    assert cluster.done == [], "once"


def test_a_disk_that_failed_counts_though_the_test_has_ended_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a fault may also have expired by itself."""

    async def set_fault(_: Switches, broker: int, __: object) -> Fault:
        return fault(broker, met=0, errno_name="EIO")

    async def clear(_: Switches, __: int, **___: object) -> tuple[list[Fault], list[object]]:
        return [], []

    monkeypatch.setattr(Switches, "set_fault", set_fault)
    monkeypatch.setattr(Switches, "clear", clear)
    monkeypatch.setattr(Switches, "of_cluster", lambda _: Switches({}))
    cluster = Switched(ErrorCode.NONE)
    asyncio.run(cluster.inject_disk(0, errno="EIO"))
    asyncio.run(cluster.restore())
    assert cluster.done == ["stop (0,)", "up"]
