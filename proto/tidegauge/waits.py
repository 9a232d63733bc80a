"""Waits that end at a cancellation: with a limit of time, or when work that must not stop half-way is done.

``asyncio.wait_for`` before Python 3.12 returns, and swallows the cancellation, if it comes within two turns of the
event loop after the awaited result: the task then continues, and a caller that waits for its end waits forever. A test
finds calls of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")
_LEFT: set[asyncio.Task[Any]] = set()
"""Work whose caller was cancelled: the event loop itself holds its tasks only weakly."""


async def until_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, or (None: without a limit) this time has passed; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


def given_up(task: asyncio.Future[Any]) -> None:
    """Cancel a task for which nothing waits any more; an error of it, then or before, is no report to the log.

    A waiter may be cancelled in the very turn in which its task fails: the error would never be retrieved.
    """
    task.cancel()
    task.add_done_callback(_retrieve)


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def carried_out(work: Coroutine[Any, Any, None]) -> None:
    """Carry work out to its end, though the caller is cancelled meanwhile; the caller is cancelled then.

    Args:
        work: what must not be left half done, such as closing connections; it ends soon.

    Raises:
        asyncio.CancelledError: the caller was cancelled; the work has ended.
    """
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled is not None:
        task.exception()
        raise cancelled
    task.result()


async def to_its_end(work: Coroutine[Any, Any, Result], give_up: Callable[[Result], object]) -> Result:
    """Return the result of work that outlives its caller's cancellation.

    Unlike ``carried_out`` a caller that is cancelled does not wait for it: what it waits for may take long.

    Args:
        work: must not be left half done.
        give_up: called with a result that no caller takes any more.
    """
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        _LEFT.add(task)
        task.add_done_callback(partial(_give_up, give_up))
        raise


def _give_up(give_up: Callable[[Result], object], task: asyncio.Task[Result]) -> None:
    _LEFT.discard(task)
    if not task.cancelled() and task.exception() is None:
        give_up(task.result())
