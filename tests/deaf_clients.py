"""Clients that do not read: a proxy between them and a broker that lets only the first bytes of responses pass."""

from __future__ import annotations

import asyncio
import sys


class DeafClients:
    """A proxy that forwards all its clients send, and takes no more than a handshake of what the broker sends them.

    Args:
        address: of the broker; the context manager gives the proxy's own.
        handshake_bytes: how many bytes of each connection reach its client.
    """

    def __init__(self, address: str, handshake_bytes: int = 2_000) -> None:
        self._handshake_bytes = handshake_bytes
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port, limit=self._handshake_bytes)
        self._writers += [writer, far_writer]
        for pump in (
            self._pump(reader, far_writer, sys.maxsize),
            self._pump(far_reader, writer, self._handshake_bytes),
        ):
            self._tasks.add(asyncio.create_task(pump))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most_bytes: int) -> None:
        taken = 0
        while taken < most_bytes and (data := await reader.read(min(most_bytes - taken, 65_536))):
            taken += len(data)
            writer.write(data)
            await writer.drain()
