"""Runs the product's coroutines without an event loop: what they wait for comes when the history says so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Awaited:
    """An outcome that a coroutine waits for.

    Args:
        begin: begins it; it is given what takes the outcome, once, at once or later.
    """

    def __init__(self, begin: Callable[[Callable[[Any], None]], None]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[Awaited, Any, Any]:
        return (yield self)


def drive(coroutine: Coroutine[Any, Any, Any], go_on: Callable[[Any], None], outcome: Any = None) -> None:
    """Run a coroutine until it waits, and later on from there; ``go_on`` takes what it returns.

    Args:
        coroutine: awaits nothing but ``Awaited``.
        go_on: called in the end; never where an outcome does not come.
        outcome: of what it has waited for.
    """
    try:
        awaited: Awaited = coroutine.send(outcome)
    except StopIteration as ended:
        go_on(ended.value)
        return
    awaited.begin(lambda result: drive(coroutine, go_on, result))
