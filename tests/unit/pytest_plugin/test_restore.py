"""``restore``: it ends everything that is in force, or raises (aio.py rule 3)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.pytest_plugin.aio import AsyncCluster


class Cluster(AsyncCluster):
    """Brokers 0 and 1, of which one does not end its faults; notes what is done to processes."""

    def __init__(self, problem: ErrorCode, state_of_1: ProcessState = ProcessState.UP) -> None:
        self.done: list[str] = []
        self.states = {0: ProcessState.UP, 1: ProcessState.UP}
        brokers = [SimpleNamespace(id=0), SimpleNamespace(id=1)]
        local: Any = SimpleNamespace(
            file=SimpleNamespace(brokers=brokers, zookeeper_managed=False),
            state_of=self.states.__getitem__,
            up=lambda: self.done.append("up"),
            wait_ready=lambda: self.done.append("wait_ready"),
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
