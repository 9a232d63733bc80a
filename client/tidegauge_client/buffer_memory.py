"""buffer.memory: back-pressure on ``send`` (KafkaProducer's BufferPool, without pooling)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from tidegauge.errors import ErrorCode, TidegaugeError


class BufferMemory:
    """buffer.memory: bytes that unfinished records may hold; who comes when it is exhausted waits in line."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free_bytes = size_bytes
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Whether someone waits."""
        return bool(self._line)

    def try_take(self, size_bytes: int) -> bool:
        """Take at once, if nobody waits and it is there."""
        if self._line or self._free_bytes < size_bytes:
            return False
        self._free_bytes -= size_bytes
        return True

    async def take(self, size_bytes: int, timeout_ms: float) -> None:
        """Wait for it.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, max.block.ms is over.
        """
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size_bytes, granted))
        try:
            await asyncio.wait_for(granted, timeout_ms / 1000)
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self.release(size_bytes)
            else:
                with contextlib.suppress(ValueError):  # ``release`` may have passed over it already
                    self._line.remove((size_bytes, granted))
                self.release(0)
            if isinstance(error, TimeoutError):
                raise TidegaugeError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"Failed to allocate {size_bytes} bytes within the configured max blocking time {timeout_ms:.0f} "
                    f"ms. Total memory: {self.size_bytes} bytes.",
                ) from None
            raise

    def release(self, size_bytes: int) -> None:
        """Give back; those in line come first."""
        self._free_bytes += size_bytes
        while self._line and self._line[0][0] <= self._free_bytes:
            wanted, granted = self._line.popleft()
            if not granted.done():
                self._free_bytes -= wanted
                granted.set_result(None)
