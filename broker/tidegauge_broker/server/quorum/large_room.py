"""Room for one large request at a time, from its message to its response.

A message of 99,000 items takes some 100 MB, and a full garbage collection that walks over it stops the event loop for a
tenth of a second or more; nothing of it is garbage before the response is sent. So others wait in their frames, and the
automatic collections are off while there is one, but for ``COLLECTIONS_OFF_SECONDS`` at most: what becomes garbage
meanwhile is collected behind it.
"""

from __future__ import annotations

import asyncio
import gc

SETTLE_SECONDS = 0.1
"""How long a request's objects may outlive its response; a collection would walk over them."""
COLLECTIONS_OFF_SECONDS = 30.0
"""Limit, for a request whose response waits long, such as for a majority of the quorum."""


class LargeRoom:
    """The room of all connections of a listener."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._limit: asyncio.TimerHandle | None = None

    async def enter(self) -> None:
        """Wait for the room; the caller leaves it."""
        await self._lock.acquire()
        gc.disable()
        self._limit = asyncio.get_running_loop().call_later(COLLECTIONS_OFF_SECONDS, gc.enable)

    def leave(self) -> None:
        """Leave the room: the response is sent, or nothing waits for it."""
        if self._limit is not None:
            self._limit.cancel()
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._open)

    def _open(self) -> None:
        gc.enable()
        self._lock.release()
