"""The hold of a node's fetches of the metadata log.

It keeps each one until it is released or its time is over, so that a held voter stands for election when its fetch
timeout ends, as one does whose leader does not respond; a held broker keeps its last image.
"""

from __future__ import annotations

import asyncio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.lab.barrier import Barrier
from tidegauge_broker.server.quorum.requests_in import TOPIC
from tidegauge_broker.server.service.gate import CallRefused

METADATA = TopicPartition(TOPIC, 0)
NOT_STEPPED = (
    f"fetches of {METADATA} can be held, and released, but not stepped: a voter stands for election as soon as its "
    "fetch timeout ends, so that a round by hand would come too late"
)


class HeldFetches:
    """Whether this node's fetches of the metadata log are held, and where they wait."""

    def __init__(self) -> None:
        self._barrier: Barrier | None = None

    @property
    def is_held(self) -> bool:
        """Whether they are."""
        return self._barrier is not None

    def hold(self) -> bool:
        """Hold them; return whether that changed anything."""
        if self._barrier is not None:
            return False
        self._barrier = Barrier()
        return True

    def release(self) -> bool:
        """Let them go on; return whether that changed anything."""
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            barrier.release()
        return barrier is not None

    async def wait(self, limit_seconds: float) -> None:
        """Wait while they are held.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, the time is over, or the node stops.
        """
        if self._barrier is None:
            return
        try:
            async with asyncio.timeout(limit_seconds):
                await self._barrier.wait()
        except (TimeoutError, CallRefused):
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "held by the lab") from None

    def close(self) -> None:
        """End what waits: the node stops."""
        if self._barrier is not None:
            self._barrier.refuse()
