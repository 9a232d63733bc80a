"""A timer for the next of many deadlines, on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls ``tick`` when a deadline comes. One that is put off leaves the timer as it is: it fires, and is set again.

    Args:
        now_ms: the broker's clock, in whose time deadlines are.
        tick: called once for each time that the timer was set.
    """

    def __init__(self, now_ms: Callable[[], int], tick: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._call = tick
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, due_ms: int) -> None:
        """Fire at a deadline, unless the timer fires earlier."""
        if self._handle is not None:
            if due_ms >= self._due_ms:
                return
            self._handle.cancel()
        self._due_ms = due_ms
        delay_seconds = max(0, due_ms - self._now_ms()) / 1000
        self._handle = asyncio.get_running_loop().call_later(delay_seconds, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._call()

    def cancel(self) -> None:
        """Fire no more, until it is set again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
