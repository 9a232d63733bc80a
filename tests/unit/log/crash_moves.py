"""Moves between log directories without a task of their own: a script makes their steps."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from tidegauge_broker.server.replication.log_dir_moves import LogDirMoves, MoveLimits


class Moves(LogDirMoves):
    """The moves without their task: the script makes the steps."""

    def _start(self) -> None:
        """Start no task."""

    def advance(self) -> None:
        if self.copied:
            at = min(self.copied)
            self._advance(at)
            run_at_once(self._sync_copy(at))


def run_at_once(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run what waits for nothing."""
    with suppress(StopIteration):
        coroutine.send(None)


async def at_once(call: Callable[[], None]) -> None:
    call()


def moves_of(replicas: Any, now_ms: Callable[[], int]) -> Moves:
    """Return the moves of a broker's replicas, by 200 bytes at most."""
    return Moves(replicas, MoveLimits(step_bytes=200), at_once, now_ms)


def finish_moving(world: Any, one: int, other: int) -> None:
    """Make the steps of a move to its end, or many of them."""
    world.go_on_moving(0, 0, steps=60)
