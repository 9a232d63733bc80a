"""A loop over many things that leaves the event loop to others now and then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

Item = TypeVar("Item")
ITEMS_PER_TURN = 50


async def with_turns(items: Iterable[Item], items_per_turn: int = ITEMS_PER_TURN) -> AsyncIterator[Item]:
    """Yield each of them; after every ``items_per_turn`` the event loop has a turn."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % items_per_turn:
            await asyncio.sleep(0)
