"""The other end of a connection at a controller's listener, without a socket."""

from __future__ import annotations

from typing import Any

from tidegauge.kafka.apis import API_VERSIONS
from tidegauge.kafka.frames import joined
from tidegauge.kafka.kraft import apis
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.connection import QuorumConnection
from tidegauge_broker.server.quorum.large_room import LargeRoom
from tidegauge_broker.server.wire.kafka.turns import Turns


class Wire:
    """A transport that keeps written bytes, and whether it is read from."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.is_reading = True

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 50_000) if name == "peername" else None

    def writelines(self, parts: list[bytes]) -> None:
        self.written += joined(parts)

    def abort(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Listening:
    """A listener whose handlers note requests; responses come when the test gives them."""

    def __init__(self, *, has_room: bool = True, max_request_bytes: int = 1000) -> None:
        self.max_request_bytes = max_request_bytes
        self.turns = Turns()
        self.large_room = LargeRoom()
        self.asked: list[Call] = []
        self._has_room = has_room
        keys = (API_VERSIONS, apis.DESCRIBE_QUORUM)
        self.handlers = {key: Served(key, self.asked.append) for key in keys}

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        return ANONYMOUS if certificate is None else None

    def opened(self, _connection: QuorumConnection) -> bool:
        return self._has_room

    def closed(self, _connection: QuorumConnection) -> None:
        pass


def give(connection: QuorumConnection, data: bytes) -> None:
    """Let bytes arrive."""
    while data:
        view = connection.get_buffer(-1)
        size = min(len(view), len(data))
        view[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]
