"""Work on many things that leaves the event loop to others now and then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
ITEMS_PER_TURN = 50


async def with_turns(items: Iterable[Item], items_per_turn: int = ITEMS_PER_TURN) -> AsyncIterator[Item]:
    """Yield each of them; after every ``items_per_turn`` the event loop has a turn."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % items_per_turn:
            await asyncio.sleep(0)


async def in_portions(
    items: Sequence[Item], handle: Callable[[Sequence[Item]], Coroutine[Any, Any, Sequence[Result]]], size: int
) -> Sequence[Result]:
    """Handle items in portions, each begun in a turn of the event loop of its own, and awaited together.

    Args:
        items: of any number.
        handle: returns the results of some.
        size: how many are a portion.

    Returns:
        The results of all, in order.
    """
    if len(items) <= size:
        return await handle(items)
    tasks: list[asyncio.Task[Sequence[Result]]] = []
    try:
        for first in range(0, len(items), size):
            tasks.append(asyncio.get_running_loop().create_task(handle(items[first : first + size])))
            await asyncio.sleep(0)
        return [result for found in await asyncio.gather(*tasks) for result in found]
    finally:
        for task in tasks:
            task.cancel()  # which does nothing to those that have ended
