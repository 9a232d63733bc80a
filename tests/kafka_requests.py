"""One request of Kafka's protocol to a real broker, without a client."""

from __future__ import annotations

import socket
import struct
from typing import Any

from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame

LIMIT_SECONDS = 60.0


def ask(address: str, key: int, message: Any, version: int, protocol: Protocol = BROKER_PROTOCOL) -> Any:
    """Return the response of the broker at ``host:port``, over a new connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), LIMIT_SECONDS) as connection, connection.makefile("rb") as stream:
        connection.sendall(joined(request_frame(key, version, 1, "test", message, protocol=protocol)))
        (size,) = struct.unpack(">i", stream.read(4))
        frame = memoryview(stream.read(size))
    correlation_id, at = read_response_header(key, version, frame, protocol)
    assert correlation_id == 1
    response, end = decode(key, version, frame, at, response=True, protocol=protocol)
    assert end == len(frame)
    return response
