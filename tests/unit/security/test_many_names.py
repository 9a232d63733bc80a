"""A request is refused for one name that its caller may not use, however many names it has; many are asked in turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegauge_broker.server.wire.kafka.authorization.asking import if_all
from tidegauge_broker.server.wire.kafka.responses import settled
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN


@pytest.mark.parametrize("count", [1, ITEMS_PER_TURN, 4 * ITEMS_PER_TURN])
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_the_last_name_decides_like_the_first(count: int, is_allowed: bool) -> None:
    asked_in: list[int] = []
    turn = 0

    def may(name: int) -> bool:
        asked_in.append(turn)
        return is_allowed or name < count - 1

    async def handled() -> str:
        return "handled"

    response: Any = if_all(range(count), may, handled, lambda: "refused")
    task = asyncio.ensure_future(settled(response)) if asyncio.iscoroutine(response) else None
    while task is not None and not task.done():
        turn += 1
        await asyncio.sleep(0)
    found = response if task is None else task.result()
    assert found == ("handled" if is_allowed else "refused")
    assert max(map(asked_in.count, asked_in)) <= ITEMS_PER_TURN
    assert len(asked_in) == count
