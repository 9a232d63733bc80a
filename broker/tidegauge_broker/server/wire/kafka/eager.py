"""Coroutines that begin at once: one that never waits costs no task and no turn of the event loop.

Most fetches find records and wait for nothing. Python 3.12's eager tasks do the same; this works from 3.11 on. Only for
coroutines that wait for futures and do not ask for the current task before their first wait.

A fetch that is parked ends when records come, and its follower waits for it: ``Resumption`` goes on with it in the
callback of the future that it waits for. A task takes one turn of the event loop for that and one more for whatever
waits for the task.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")


def begun(coroutine: Coroutine[Any, Any, Result], *, needs_task: bool = True) -> Result | Coroutine[Any, Any, Result]:
    """Run a coroutine up to its first wait.

    Args:
        coroutine: one that has not begun.
        needs_task: whether it may ask for the current task later (``asyncio.timeout`` does); else what remains of it is
            ``Taskless``.

    Returns:
        Its result if it has ended; else what remains of it, for a task or an ``await``. Cancelling that task reaches
        the coroutine where it waits, even if the task has not had a turn yet.

    Raises:
        Exception: what the coroutine raises before it waits.
    """
    try:
        first = coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    return Begun(coroutine, first) if needs_task else Taskless(coroutine, first)


class Around(Coroutine[Any, Any, Result]):
    """A coroutine around another one; whoever cancels reaches that one where it waits.

    Args:
        coroutine: the other one, begun or not.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any, /) -> Any:
        """Go on with the coroutine."""
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: types.TracebackType | None = None, /) -> Any:
        """Raise an exception where the coroutine waits."""
        if value is None and traceback is None:
            return self._coroutine.throw(kind)
        return self._coroutine.throw(kind, value, traceback)

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)


class Begun(Around[Result]):
    """What remains of a coroutine that waits for ``first``."""

    def __init__(self, coroutine: Coroutine[Any, Any, Result], first: Any) -> None:
        super().__init__(coroutine)
        self._first = first

    def send(self, value: Any, /) -> Any:
        """Give what the coroutine waits for, then go on with it."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: types.TracebackType | None = None, /) -> Any:
        """Raise an exception where the coroutine waits."""
        self._first = None
        return super().throw(kind, value, traceback)


class Taskless(Begun[Result]):
    """What remains of a coroutine that never asks for the current task."""


class Resumption:
    """Goes on with a coroutine wherever its waits end, without a task.

    Args:
        coroutine: waits for futures of the running loop, or for one turn of it (``asyncio.sleep(0)``).
        done: called once with its result and None, or with None and what it raised; not after ``cancel``.
    """

    __slots__ = ("_coroutine", "_done", "_turn", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._coroutine = coroutine
        self._done = done
        self._waits_for: asyncio.Future[Any] | None = None
        self._turn: asyncio.Handle | None = None
        self._go_on()

    def _go_on(self, _: object = None) -> None:
        """Run the coroutine's next step: it asks the future for its result itself."""
        self._waits_for = self._turn = None
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self._done(end.value, None)
        except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - as a task, it hands on whatever it is
            self._done(None, problem)
        else:
            if waits_for is None:
                self._turn = asyncio.get_running_loop().call_soon(self._go_on)
                return
            waits_for._asyncio_future_blocking = False  # noqa: SLF001 - how a future and what awaits it shake hands
            self._waits_for = waits_for
            waits_for.add_done_callback(self._go_on)

    def cancel(self) -> None:
        """Cancel the coroutine where it waits, at once; ``done`` is not called."""
        if self._turn is not None:
            self._turn.cancel()
        if self._waits_for is not None:
            self._waits_for.remove_done_callback(self._go_on)
            self._waits_for.cancel()
        try:
            self._coroutine.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            return
        self._coroutine.close()
