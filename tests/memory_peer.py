"""A broker at the other end of a channel that speaks Kafka's protocol, in memory: no socket, no time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidegauge.kafka.apis import API_VERSIONS, APIS
from tidegauge.kafka.frames import RequestHeader, codec_of, joined, read_request_header
from tidegauge.kafka.header_tags import Tags
from tidegauge.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidegauge.kafka_connection import KafkaConnection


class MemoryTransport(asyncio.Transport):
    """Hands written bytes to a function."""

    def __init__(self, written: Callable[[bytes], None]) -> None:
        super().__init__({"peername": ("10.0.0.9", 5)})
        self._written = written
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self._written(bytes(data))

    def abort(self) -> None:
        self.is_aborted = True


class Asked(NamedTuple):
    """A request that arrived."""

    header: RequestHeader
    message: Any


class MemoryPeer:
    """Serves requests with functions by API key; one that returns None leaves its request without a response.

    Args:
        handlers: each takes the request's message and version, and returns the response's message.
        versions: the lowest and highest version served, by API key; absent: all.

    Attributes:
        requests: all but ApiVersions, in their order.
        connections: every connection that was opened.
        refuses: what an attempt to connect fails with; None: it succeeds.
        chunk_bytes: how many bytes are delivered at a time.
        logical_time: of its clock, which goes with its responses; 0: it has none.
    """

    def __init__(
        self, handlers: Mapping[int, Callable[[Any, int], Any]], versions: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        self.handlers = dict(handlers)
        self.requests: list[Asked] = []
        self.connections: list[KafkaConnection] = []
        self.transports: list[MemoryTransport] = []
        self.addresses: list[str] = []
        self.refuses: Exception | None = None
        self.chunk_bytes = 1 << 20
        self.logical_time = 0
        self._versions = versions or {}
        self._happened = asyncio.Event()

    async def until(self, is_so: Callable[[], Any]) -> None:
        """Wait until something is so; it is looked at after each request and each new connection."""
        while not is_so():
            self._happened.clear()
            await self._happened.wait()

    async def dial(self, address: str, protocol: Callable[[], KafkaConnection]) -> KafkaConnection:
        """Connect; see ``kafka_channel.Dial``."""
        self.addresses.append(address)
        if self.refuses is not None:
            raise self.refuses
        connection = protocol()
        unread = bytearray()

        def written(data: bytes) -> None:
            unread.extend(data)
            while len(unread) >= 4 and len(unread) >= 4 + struct.unpack_from(">i", unread)[0]:
                end = 4 + struct.unpack_from(">i", unread)[0]
                frame = bytes(unread[4:end])
                del unread[:end]
                asyncio.get_running_loop().call_soon(self._serve, connection, memoryview(frame))

        transport = MemoryTransport(written)
        connection.connection_made(transport)
        self.connections.append(connection)
        self.transports.append(transport)
        self._happened.set()
        return connection

    def _serve(self, connection: KafkaConnection, frame: memoryview) -> None:
        header = read_request_header(frame)
        codec = codec_of(header.key, header.version)
        message, _ = codec.decode_request(frame, header.body_at)
        if header.key == API_VERSIONS:
            response: Any = self._api_versions()
        else:
            self.requests.append(Asked(header, message))
            response = self.handlers[header.key](message, header.version)
            self._happened.set()
        if response is not None:
            parts = codec.response_frame(header.correlation_id, codec.encode(response), Tags(self.logical_time))
            self.deliver(connection, joined(parts))

    def _api_versions(self) -> ApiVersionsResponse:
        ranges = {key: (api.first, api.last) for key, api in APIS.items()} | dict(self._versions)
        return ApiVersionsResponse(api_keys=[ApiVersion(key, *both) for key, both in ranges.items() if both[1] >= 0])

    def deliver(self, connection: KafkaConnection, data: bytes) -> None:
        """Give a connection bytes, as the event loop would."""
        left = memoryview(data)[:]
        while left:
            buffer = connection.get_buffer(-1)
            count = min(len(buffer), len(left), self.chunk_bytes)
            buffer[:count] = left[:count]
            connection.buffer_updated(count)
            left = left[count:]
