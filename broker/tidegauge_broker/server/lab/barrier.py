"""The place where held requests and responses wait until a hold is released. It never blocks another request."""

from __future__ import annotations

import asyncio

from tidegauge_broker.server.service.gate import CallRefused


class Barrier:
    """What one hold keeps; see ``tidegauge_broker.server.service.gate.Hold``."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_released = False

    @property
    def held(self) -> int:
        """Number of requests and responses that wait now."""
        return len(self._waiting)

    async def wait(self) -> None:
        """Wait until the hold is released; a caller that is cancelled leaves nothing behind.

        Raises:
            CallRefused: the broker stops.
        """
        if self._is_released:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def release(self) -> None:
        """Let go on all that waits, and hold nothing more."""
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
