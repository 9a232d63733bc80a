"""buffer.memory: back-pressure on ``send`` (KafkaProducer's BufferPool, without pooling)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from tidegauge.errors import ErrorCode, TidegaugeError


class BufferMemory:
    """Bytes that unfinished records may occupy; callers queue in order of arrival while it is exhausted."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free_bytes = size_bytes
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Return whether a caller waits for memory."""
        return bool(self._line)

    def try_take(self, size_bytes: int) -> bool:
        """Take memory at once, if no caller waits and enough is free; return whether it was taken."""
        if self._line or self._free_bytes < size_bytes:
            return False
        self._free_bytes -= size_bytes
        return True

    async def take(self, size_bytes: int, timeout_ms: float) -> None:
        """Take memory, waiting until enough is free.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, max.block.ms has passed.
        """
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size_bytes, granted))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await granted
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
        """Return memory; callers that wait are served first."""
        self._free_bytes += size_bytes
        while self._line and self._line[0][0] <= self._free_bytes:
            wanted, granted = self._line.popleft()
            if not granted.done():
                self._free_bytes -= wanted
                granted.set_result(None)
