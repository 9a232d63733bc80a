"""The other side of a Kafka connection, and the listener that it comes through, without sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge.kafka.frames import RequestHeader, decode, read_response_header
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.server.wire.kafka.connection import KafkaConnection
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.turns import Turns


class Transport(asyncio.Transport):
    """Keeps written bytes; reads nothing by itself."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 5)})
        self.written = bytearray()
        self.is_reading = True
        self.ended: str | None = None

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


SOCKET = 1_000_007
"""Descriptor of a socket that no process has."""


class PlainTransport(Transport):
    """One without TLS: the connection may write to its socket at once."""

    unwritten = 0
    is_ending = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        class Socket:
            @staticmethod
            def fileno() -> int:
                return SOCKET

        return Socket if name == "socket" else super().get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self.unwritten

    def is_closing(self) -> bool:
        return self.is_ending


class Listener:
    """Accepts connections; its handlers are the test's."""

    name = "PLAINTEXT"
    protocol = BROKER_PROTOCOL
    served = SERVED
    max_request_bytes = 1_000_000
    gate: Any = None
    responded: Any = None
    serves_brokers = False
    serves_controller = False
    logical_clock: Any = None

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[..., Any]] = {}
        self.room = True
        self.turns = Turns()
        self.responses: Any = None
        self.gone: list[KafkaConnection] = []

    def protocol_of(self, header: RequestHeader) -> Protocol:
        del header
        return self.protocol

    def context(self, connection: KafkaConnection, header: RequestHeader) -> Any:
        return SimpleNamespace(version=header.version, header=header, quotas=None)

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        return None if certificate else ANONYMOUS

    def opened(self, connection: KafkaConnection) -> bool:
        return self.room

    def closed(self, connection: KafkaConnection) -> None:
        self.gone.append(connection)


class Client:
    """The other side: sends frames in pieces and reads responses."""

    def __init__(self, listener: Listener, transport: Transport | None = None) -> None:
        self.transport = transport or Transport()
        self.connection = KafkaConnection(listener, lambda: 0)
        self.connection.connection_made(self.transport)
        self._read = 0

    def send(self, data: bytes, piece: int = 10**9) -> None:
        at = 0
        while at < len(data):
            buffer = self.connection.get_buffer(-1)
            part = data[at : at + min(piece, len(buffer))]
            buffer[: len(part)] = part
            at += len(part)
            self.connection.buffer_updated(len(part))

    def responses(self) -> list[tuple[int, memoryview]]:
        """Correlation ids and frames that have come since the last look."""
        found = []
        written = memoryview(bytes(self.transport.written))
        while self._read < len(written):
            (size,) = struct.unpack_from(">i", written, self._read)
            frame = written[self._read + 4 : self._read + 4 + size]
            found.append((struct.unpack_from(">i", frame)[0], frame))
            self._read += 4 + size
        return found

    async def response(self, key: int, version: int, turns: int) -> Any:
        """The next response's message after some turns of the event loop, or None if none came."""
        for _ in range(turns):
            await asyncio.sleep(0)
        found = self.responses()
        if not found:
            return None
        frame = found[0][1]
        _, body_at = read_response_header(key, version, frame)
        return decode(key, version, frame, body_at, response=True)[0]

    def correlation_ids(self) -> list[int]:
        return [correlation_id for correlation_id, _ in self.responses()]
