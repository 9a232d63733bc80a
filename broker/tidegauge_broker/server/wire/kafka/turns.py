"""Large messages are decoded and encoded in slices; between two of them the event loop serves the other connections.

A message of up to ``ITEMS_PER_TURN`` array items takes one slice and no turn of the event loop. The rest of larger ones
runs one message at a time, in order of arrival, so that only one takes memory meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from tidegauge.kafka.frames import codec_of
from tidegauge.with_turns import with_turns

ITEMS_PER_TURN = 500
MAX_LARGE_READS = 8
"""Maximum number of large requests that only read and are handled at a time, over all connections.

Kafka's num.io.threads, 8 by default, bounds the decoded ones; ``queued.max.requests`` the ones in frames.
"""
LARGE_FRAME_BYTES = 32 * 1024
"""A smaller frame cannot hold enough items to make others wait for it."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Turns:
    """Decodes and encodes large messages in slices. One for all connections of a broker.

    Attributes:
        one_at_a_time: held while a large message is decoded or encoded.
        large_reads: held while a large request that only reads is decoded and handled.
    """

    def __init__(self) -> None:
        self.one_at_a_time = asyncio.Lock()
        self.large_reads = asyncio.Semaphore(MAX_LARGE_READS)

    def run(self, slices: Generator[None, None, Result]) -> Result | Remaining[Result]:
        """Run the first slice; return what the generator returns if that was all, else what remains.

        Raises:
            Exception: what the slice raises.
        """
        try:
            next(slices)
        except StopIteration as end:
            result: Result = end.value
            return result
        return Remaining(self, slices)


class Remaining(Generic[Result]):
    """The slices of a message that do not fit into this turn of the event loop."""

    def __init__(self, turns: Turns, slices: Generator[None, None, Result]) -> None:
        self._turns = turns
        self._slices = slices

    async def run(self) -> Result:
        """Run them, each in a turn of its own; return what the generator returns.

        Raises:
            Exception: what a slice raises.
        """
        async with self._turns.one_at_a_time:
            return await self.finish()

    async def finish(self) -> Result:
        """Do what ``run`` does, for a caller that holds ``one_at_a_time``."""
        await asyncio.sleep(0)
        return await run_in_turns(self._slices)


async def run_in_turns(slices: Generator[None, None, Result]) -> Result:
    """Run slices, with a turn of the event loop between two; return what the generator returns."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: Result = end.value
            return result
        await asyncio.sleep(0)


async def converted(convert: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return each item's form, with turns of the event loop between.

    A response may have 100,000 items.
    """
    return [convert(one) async for one in with_turns(items, ITEMS_PER_TURN)]


async def encoded_bytes(key: int, version: int, message: Any) -> int:
    """Return a message's encoded size; a large one takes several turns."""
    return sum(map(len, await run_in_turns(codec_of(key, version).encode_in_slices(message, ITEMS_PER_TURN))))
