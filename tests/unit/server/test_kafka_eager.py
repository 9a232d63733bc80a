"""A coroutine that begins at once: its result without a task, and cancellation wherever it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tidegauge_broker.server.wire.kafka.eager import Resumption, Taskless, begun


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


class Parked:
    """A coroutine without a task that waits for two futures, with a turn of the event loop between."""

    def __init__(self) -> None:
        self.waits_for = [asyncio.get_running_loop().create_future() for _ in range(2)]
        self.ended: list[str] = []
        self.outcomes: list[tuple[int | None, BaseException | None]] = []
        rest = begun(self._wait(), needs_task=False)
        assert isinstance(rest, Taskless)
        self.resumption = Resumption(rest, lambda result, problem: self.outcomes.append((result, problem)))

    async def _wait(self) -> int:
        try:
            first: int = await self.waits_for[0]
            await asyncio.sleep(0)
            return first + await self.waits_for[1]
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise


async def test_without_a_task_it_goes_on_in_the_turn_behind_each_wait() -> None:
    """A parked fetch is responded to one turn after the append that it waits for; a task takes two."""
    parked = Parked()
    for future, turns in zip(parked.waits_for, (2, 1), strict=True):
        future.set_result(3)
        for _ in range(turns):
            assert parked.outcomes == []
            await asyncio.sleep(0)
    assert parked.outcomes == [(6, None)]


async def test_what_it_raises_behind_a_wait_is_handed_on() -> None:
    parked = Parked()
    parked.waits_for[0].set_exception(problem := KeyError("x"))
    await asyncio.sleep(0)
    assert parked.outcomes == [(None, problem)]


async def test_a_future_that_another_cancels_ends_it() -> None:
    parked = Parked()
    parked.waits_for[0].cancel()
    await asyncio.sleep(0)
    [(result, problem)] = parked.outcomes
    assert result is None
    assert isinstance(problem, asyncio.CancelledError)


@pytest.mark.parametrize("waits_for_a_turn", [False, True])
async def test_without_a_task_it_is_cancelled_where_it_waits_and_at_once(waits_for_a_turn: bool) -> None:
    """A connection that closes forgets its parked fetch: nothing runs later, and the future wants no result."""
    parked = Parked()
    if waits_for_a_turn:
        parked.waits_for[0].set_result(1)
        await asyncio.sleep(0)
    parked.resumption.cancel()
    assert parked.ended == ["cancelled"]
    assert parked.waits_for[0].cancelled() != waits_for_a_turn
    await asyncio.sleep(0)
    assert parked.outcomes == []
