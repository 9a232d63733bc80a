"""The place where held requests and responses wait until a hold is released. It never blocks another request."""

from __future__ import annotations

import asyncio

from tidegauge_broker.server.service.gate import CallRefused


class Barrier:
    """The requests that one hold keeps; see ``tidegauge_broker.server.service.gate.Hold``.

    Args:
        outlives_connection: whether a request waits on after its connection was closed. It takes effect late then, as
            one does that a broker of Kafka has in its request queue when the client disconnects (RequestChannel).
    """

    def __init__(self, *, outlives_connection: bool = False) -> None:
        self._outlives_connection = outlives_connection
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_released = False

    @property
    def held(self) -> int:
        """Number of requests and responses that wait now."""
        return len(self._waiting)

    async def wait(self) -> None:
        """Wait until the hold is released; a caller that is cancelled leaves nothing behind, unless it outlives that.

        Raises:
            CallRefused: the broker stops.
        """
        if self._is_released:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await self._for(future)
        finally:
            self._waiting.discard(future)

    async def _for(self, future: asyncio.Future[None]) -> None:
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._outlives_connection or task is None:
                    raise
                task.uncancel()

    def release(self) -> None:
        """Release everything that waits, and hold nothing more."""
        self._is_released = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def refuse(self) -> None:
        """End all that waits without a response, and hold nothing more: the broker stops."""
        self._is_released = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(CallRefused("the broker stops"))
