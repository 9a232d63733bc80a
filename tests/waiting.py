"""The one place in the tests that sleeps: look again until a condition holds, and the pace of a load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PAUSE_SECONDS = 0.02

Result = TypeVar("Result")


def until(condition: Callable[[], Result], timeout: float = 150.0, what: str = "") -> Result:
    """Wait until the condition is true and give its value; AssertionError with its last value after ``timeout`` s."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {timeout:g} s: {what or condition}; last value: {value!r}"
        time.sleep(PAUSE_SECONDS)
    return value


async def until_async(condition: Callable[[], Awaitable[Result]], limit: float = 150.0, what: str = "") -> Result:
    """The same for a condition that awaits; the event loop goes on meanwhile."""
    end = time.monotonic() + limit
    while not (value := await condition()):
        assert time.monotonic() < end, f"not within {limit:g} s: {what or condition}; last value: {value!r}"
        await asyncio.sleep(PAUSE_SECONDS)
    return value


async def pace(pause_seconds: float) -> None:
    """Let a load breathe, so that it lasts while something else happens. Nothing may be concluded from its length."""
    await asyncio.sleep(pause_seconds)
