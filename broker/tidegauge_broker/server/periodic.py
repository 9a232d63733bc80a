"""A call repeated at an interval, on the event loop. One that fails is told in the log and tried again next time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

LOG = logging.getLogger("tidegauge.periodic")


class Periodic:
    """Runs ``call`` every ``interval_ms``, the first time after ``first_ms`` or one interval, what is shorter."""

    def __init__(
        self, name: str, interval_ms: int, call: Callable[[], Awaitable[None]], first_ms: int | None = None
    ) -> None:
        self._name = name
        self._interval_seconds = max(interval_ms, 10) / 1000
        # Kafka waits log.initial.task.delay.ms even for shorter intervals; a lab that asks for 1 s means 1 s.
        self._first_seconds = min(self._interval_seconds, (interval_ms if first_ms is None else first_ms) / 1000)
        self._call = call
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"periodic-{name}")

    async def _run(self) -> None:
        await asyncio.sleep(self._first_seconds)
        while True:
            try:
                await self._call()
            except Exception:
                LOG.exception("The task '%s' failed; it is tried again", self._name)
            await asyncio.sleep(self._interval_seconds)

    async def close(self) -> None:
        """End; a call under way in a thread is waited for by the pool."""
        self._task.cancel()
        await asyncio.wait([self._task])
