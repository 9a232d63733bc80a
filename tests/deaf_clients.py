"""Clients that do not read: of gRPC, behind a proxy that lets only a handshake pass; and of Kafka's own protocol."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterable

from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.partition import TopicPartition

FETCH, FETCH_VERSION = 1, 11
_RECEIVE_BUFFER_BYTES = 4_096


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


async def fetch_and_never_read(address: str, partitions: Iterable[TopicPartition]) -> None:
    """Send Kafka's Fetch requests as long as the broker takes them, and read none of the responses.

    Args:
        address: of a Kafka listener.
        partitions: each request asks for all of them, from offset 0.

    Raises:
        OSError: the connection could not be made, or the broker has closed it.
    """
    host, _, port = address.partition(":")
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    deaf.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(deaf, (host, int(port)))
        _, writer = await asyncio.open_connection(sock=deaf)
    except BaseException:
        deaf.close()
        raise
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport reads
    topics = [FetchTopic(at.topic, partitions=[_all_of(at)]) for at in partitions]
    frame = joined(request_frame(FETCH, FETCH_VERSION, 1, "deaf", FetchRequest(max_wait_ms=100, topics=topics)))
    try:
        while True:
            writer.write(frame)
            await writer.drain()
            await asyncio.sleep(0)
    finally:
        writer.transport.abort()


def _all_of(at: TopicPartition) -> FetchPartition:
    return FetchPartition(at.partition, fetch_offset=0, partition_max_bytes=2**30)
