"""Cancels a call at each turn of the event loop that it lasts, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

MAX_TURNS = 1_000


async def cancel_after(turns: int, call: Coroutine[Any, Any, Any]) -> bool:
    """Begin a call, and cancel it after some turns of the event loop; return whether it had not ended before.

    Raises:
        AssertionError: it was cancelled, and went on or swallowed it.
    """
    task = asyncio.get_running_loop().create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.done():
        task.result()
        return False
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled(), f"cancelled after {turns} turns, and not heard"
    return True


async def at_each_turn(check: Callable[[int], Awaitable[bool]]) -> int:
    """Run a check with each number of turns, until its call has ended before; return how many turns it lasts."""
    for turns in range(1, MAX_TURNS):  # a task that is cancelled before its first turn calls nothing
        if not await check(turns):
            return turns
    raise AssertionError("it never ends")
