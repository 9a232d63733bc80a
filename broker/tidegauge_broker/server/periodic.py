"""A call repeated at an interval, on the event loop. One that fails is told in the log and tried again next time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

LOG = logging.getLogger("tidegauge.periodic")


class Periodic:
    """Runs ``call`` every ``interval_ms``, the first time after one interval."""

    def __init__(self, name: str, interval_ms: int, call: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._interval_seconds = max(interval_ms, 10) / 1000
        self._call = call
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"periodic-{name}")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                await self._call()
            except Exception:
                LOG.exception("The task '%s' failed; it is tried again", self._name)

    async def close(self) -> None:
        """End; a call under way in a thread is waited for by the pool."""
        self._task.cancel()
        await asyncio.wait([self._task])
