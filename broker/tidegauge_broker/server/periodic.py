"""A call repeated at an interval, on the event loop. One that fails is logged and tried again next time."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

LOG = logging.getLogger("tidegauge.periodic")
LOOK_AGAIN_SECONDS = 1.0
"""Upper bound on how long a shortened interval takes to apply."""


class Periodic:
    """Runs ``call`` every ``interval_ms``, first after the shorter of ``first_ms`` and one interval.

    An interval that may change while it runs is given as a function.
    """

    def __init__(
        self,
        name: str,
        interval_ms: int | Callable[[], int],
        call: Callable[[], Awaitable[None]],
        first_ms: int | None = None,
    ) -> None:
        self._name = name
        self._interval_ms = interval_ms
        self._first_ms = first_ms
        self._call = call
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"periodic-{name}")

    def _interval_seconds(self) -> float:
        interval_ms = self._interval_ms if isinstance(self._interval_ms, int) else self._interval_ms()
        return max(interval_ms, 10) / 1000

    async def _pause(self, at_most_seconds: float) -> None:
        """Sleep for one interval, as long as the setting is at its end."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while (left_seconds := begin + min(self._interval_seconds(), at_most_seconds) - loop.time()) > 0:
            is_fixed = isinstance(self._interval_ms, int)
            await asyncio.sleep(left_seconds if is_fixed else min(left_seconds, LOOK_AGAIN_SECONDS))

    async def _run(self) -> None:
        # Kafka waits log.initial.task.delay.ms even for shorter intervals; a lab that asks for 1 s means 1 s.
        await self._pause(math.inf if self._first_ms is None else self._first_ms / 1000)
        while True:
            try:
                await self._call()
            except Exception:
                LOG.exception("The task '%s' failed; it is tried again", self._name)
            await self._pause(math.inf)

    async def close(self) -> None:
        """Stop repeating; the pool waits for a call in progress in one of its threads."""
        self._task.cancel()
        await asyncio.wait([self._task])
