"""Coroutines that begin at once: one that never waits costs no task and no turn of the event loop.

Most fetches find records and wait for nothing. Python 3.12's eager tasks do the same; this works from 3.11 on. Only for
coroutines that wait for futures and do not ask for the current task before their first wait.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")


def begun(coroutine: Coroutine[Any, Any, Result]) -> Result | Coroutine[Any, Any, Result]:
    """Run a coroutine up to its first wait.

    Args:
        coroutine: one that has not begun.

    Returns:
        Its result if it has ended; else the rest of it, for a task or an ``await``. Cancelling that task reaches
        the coroutine at its wait, even if the task has not had a turn yet.

    Raises:
        Exception: what the coroutine raises before it waits.
    """
    try:
        first = coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    return Begun(coroutine, first)


class Around(Coroutine[Any, Any, Result]):
    """A coroutine around another one; a cancellation reaches the inner one at its wait.

    Args:
        coroutine: the other one, begun or not.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any, /) -> Any:
        """Continue the coroutine."""
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
    """The rest of a coroutine that waits for ``first``."""

    def __init__(self, coroutine: Coroutine[Any, Any, Result], first: Any) -> None:
        super().__init__(coroutine)
        self._first = first

    def send(self, value: Any, /) -> Any:
        """Give what the coroutine waits for, then continue it."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: types.TracebackType | None = None, /) -> Any:
        """Raise an exception where the coroutine waits."""
        self._first = None
        return super().throw(kind, value, traceback)
