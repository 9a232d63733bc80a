"""Calls at an interval, which may be changed while they run (log.cleaner.backoff.ms is dynamic cluster-wide)."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import until_async

from tidegauge_broker.server import periodic
from tidegauge_broker.server.periodic import Periodic


class Calls:
    """Counts them; ``refuse`` makes each fail."""

    def __init__(self, *, refuse: bool = False) -> None:
        self.count = 0
        self.refuse = refuse

    async def make(self) -> None:
        self.count += 1
        if self.refuse:
            raise OSError("disk")

    async def were_several(self) -> bool:
        return self.count >= 2


async def test_an_interval_that_was_shortened_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only after the pause that was begun under the old one (LogCleaner.reconfigure starts again)."""
    monkeypatch.setattr(periodic, "LOOK_AGAIN_SECONDS", 0.01)
    interval_ms = 3_600_000
    begun = asyncio.Event()

    def interval() -> int:
        begun.set()
        return interval_ms

    calls = Calls()
    task = Periodic("test", interval, calls.make)
    await begun.wait()
    assert calls.count == 0
    interval_ms = 10
    await until_async(calls.were_several)
    await task.close()


async def test_a_call_that_fails_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(refuse=True)
    task = Periodic("test", 10, calls.make)
    await until_async(calls.were_several)
    await task.close()
    assert "The task 'test' failed; it is tried again" in caplog.text
