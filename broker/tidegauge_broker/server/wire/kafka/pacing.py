"""A response at a rate: pieces with pauses, as a slow network delivers it. For the lab's rules alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PIECE_MS = 50


async def write_slowly(
    write: Callable[[bytes], None],
    data: bytes,
    bytes_per_second: int,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Write data in pieces, each when its last byte would have arrived.

    Args:
        write: takes a piece.
        data: to write.
        bytes_per_second: the rate.
        sleep: waits for a number of seconds.
    """
    size = max(1, bytes_per_second * PIECE_MS // 1000)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        await sleep(len(piece) / bytes_per_second)
        write(piece)
