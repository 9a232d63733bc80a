"""Answers on their way: a connection whose client takes none is given no more.

Kafka serves the requests of a connection one after the other, so a client that reads slowly costs one answer. Here the
calls of a connection run beside one another; once its unsent answers hold ``most_bytes``, its next fetches wait until
some of them have gone, or the connection has. What a waiting fetch wants to gather before it is answered
(fetch.min.bytes) counts as if it were there: else hundreds of them could be answered at one moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]
_NOT_WORTH_COUNTING_BYTES = 65_536


class Outgoing:
    """Bytes of answers that have not gone yet, by connection."""

    def __init__(self) -> None:
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._gone: dict[str, asyncio.Event] = {}

    async def room(self, connection: str, most_bytes: int) -> None:
        """Wait until the connection may be given another answer."""
        while self._bytes.get(connection, 0) >= most_bytes:
            await self._gone.setdefault(connection, asyncio.Event()).wait()

    def hold(self, connection: str, size_bytes: int, context: Context) -> None:
        """An answer goes out in this call; it counts until the call is over."""
        if size_bytes > _NOT_WORTH_COUNTING_BYTES:
            self._bytes[connection] += size_bytes
            sent = partial(self._sent, connection, size_bytes)
            context.add_done_callback(sent)  # type: ignore[arg-type]  # the stubs have a class for any callable

    @contextlib.contextmanager
    def gathering(self, connection: str, size_bytes: int) -> Iterator[None]:
        """A fetch waits until it has so much to give; it counts as long."""
        if size_bytes <= _NOT_WORTH_COUNTING_BYTES:
            yield
            return
        self._bytes[connection] += size_bytes
        try:
            yield
        finally:
            self._take_off(connection, size_bytes)

    def held_bytes(self, connection: str) -> int:
        """What has not gone yet."""
        return self._bytes.get(connection, 0)

    def _sent(self, connection: str, size_bytes: int, _: Context) -> None:
        self._take_off(connection, size_bytes)

    def _take_off(self, connection: str, size_bytes: int) -> None:
        self._bytes[connection] -= size_bytes
        if self._bytes[connection] == 0:
            del self._bytes[connection]
        gone = self._gone.pop(connection, None)
        if gone is not None:
            gone.set()
