"""A coroutine that begins at once: its result without a task, and cancellation wherever it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tidegauge_broker.server.wire.kafka.eager import begun


async def test_a_coroutine_that_does_not_wait_ends_at_once() -> None:
    async def ends() -> int:
        return 7

    assert begun(ends()) == 7


async def test_what_it_raises_before_it_waits_is_raised() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        begun(fails())


def waiting(on: list[asyncio.Future[int]], ended: list[str]) -> Coroutine[Any, Any, int]:
    async def waits() -> int:
        try:
            return sum([await future for future in on])
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    rest = begun(waits())
    assert asyncio.iscoroutine(rest)
    return rest


@pytest.mark.parametrize("is_done_before_the_tasks_turn", [False, True])
async def test_one_that_waits_goes_on_in_a_task(is_done_before_the_tasks_turn: bool) -> None:
    on = [asyncio.get_running_loop().create_future() for _ in range(2)]
    task = asyncio.get_running_loop().create_task(waiting(on, []))
    if not is_done_before_the_tasks_turn:
        await asyncio.sleep(0)
    on[0].set_result(1)
    on[1].set_result(2)
    assert await task == 3


async def test_one_that_waits_can_be_awaited() -> None:
    on = [asyncio.get_running_loop().create_future() for _ in range(2)]
    rest = waiting(on, [])
    asyncio.get_running_loop().call_soon(lambda: [future.set_result(4) for future in on])
    assert await rest == 8


@pytest.mark.parametrize("has_had_a_turn", [False, True])
async def test_a_cancelled_task_reaches_the_coroutine_where_it_waits(has_had_a_turn: bool) -> None:
    """Even before the task's first turn: a fetch gives back its room in the memory for responses there."""
    ended: list[str] = []
    task = asyncio.get_running_loop().create_task(waiting([asyncio.get_running_loop().create_future()], ended))
    if has_had_a_turn:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]
