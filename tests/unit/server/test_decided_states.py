"""States of committed metadata are taken over in portions, each in a turn of the event loop of its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tidegauge_broker.server.replication.decided_states import DecidedStates
from tidegauge_broker.server.replication.replica_changes import PARTITIONS_PER_STEP


class Changes:
    """Takes portions over without waiting for anything, as where every log is open; notes in which turn it was."""

    def __init__(self) -> None:
        self.turn = 0
        self.taken: list[tuple[int, int]] = []

    async def in_turn(self, make: Any) -> Any:
        return await make()

    async def take_over(self, states: Any, *_: object) -> tuple[dict[Any, Any], list[Any]]:
        self.taken.append((self.turn, len(states)))
        return {}, []

    async def settle(self, _states: object, errors: Any, _owed: object) -> Any:
        return errors


async def test_states_whose_logs_are_open_leave_the_loop_its_turns() -> None:
    """A broker that hosts thousands of partitions takes all over after each activation of a controller."""
    changes: Any = Changes()
    unused: Any = None
    core: Any = SimpleNamespace(logs_needed=lambda _: ())
    states: Any = [object()] * (2 * PARTITIONS_PER_STEP + 1)
    decided = DecidedStates(core, changes, unused, lambda: 0)
    task = asyncio.ensure_future(decided.apply((), states, (), unused))
    while not task.done():
        changes.turn += 1
        await asyncio.sleep(0)
    assert [size for _, size in changes.taken] == [PARTITIONS_PER_STEP, PARTITIONS_PER_STEP, 1]
    assert len({turn for turn, _ in changes.taken}) == 3
