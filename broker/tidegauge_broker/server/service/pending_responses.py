"""Fetch responses that wait to be written: back-pressure for connections that do not read.

Kafka serves the requests of a connection one after the other, so a client that reads slowly costs one response. Where a
wire serves the calls of a connection beside one another, the connection's next fetches wait once its unwritten
responses hold ``fetch.max.bytes``, until some of them have been written or the connection has closed. What a waiting
fetch wants to gather before it is answered (fetch.min.bytes) counts as if it were there: else hundreds of fetches could
be answered at one moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator

_NOT_WORTH_COUNTING_BYTES = 65_536


class PendingResponses:
    """Bytes of responses that have not been written yet, by connection."""

    def __init__(self) -> None:
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._released: dict[str, asyncio.Event] = {}

    async def room(self, connection: str, max_bytes: int) -> None:
        """Wait until the connection may be given another response: until fewer than ``max_bytes`` are pending."""
        while self._bytes.get(connection, 0) >= max_bytes:
            await self._released.setdefault(connection, asyncio.Event()).wait()

    def hold(self, connection: str, size_bytes: int) -> None:
        """Count a response until ``release`` is called with the same size."""
        if size_bytes > _NOT_WORTH_COUNTING_BYTES:
            self._bytes[connection] += size_bytes

    def release(self, connection: str, size_bytes: int) -> None:
        """Count a response no longer: it has been written, or its connection has closed."""
        if size_bytes > _NOT_WORTH_COUNTING_BYTES:
            self._take_off(connection, size_bytes)

    @contextlib.contextmanager
    def gathering(self, connection: str, size_bytes: int) -> Iterator[None]:
        """Count the bytes that a fetch waits for while it waits."""
        self.hold(connection, size_bytes)
        try:
            yield
        finally:
            self.release(connection, size_bytes)

    def held_bytes(self, connection: str) -> int:
        """Return how many bytes of the connection's responses have not been written."""
        return self._bytes.get(connection, 0)

    def _take_off(self, connection: str, size_bytes: int) -> None:
        self._bytes[connection] -= size_bytes
        if self._bytes[connection] == 0:
            del self._bytes[connection]
        released = self._released.pop(connection, None)
        if released is not None:
            released.set()
