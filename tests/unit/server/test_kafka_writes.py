"""A connection of Kafka's protocol writes to the socket without a copy, the rest through the transport, in order."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_peer import SOCKET, Client, Listener, PlainTransport

from tidegauge.kafka.apis import FETCH, METADATA
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge_broker.server.wire.kafka import connection as module


def request(key: int, message: Any) -> bytes:
    return joined(request_frame(key, {FETCH: 12, METADATA: 9}[key], 1, "test", message))


@pytest.fixture
def listener() -> Listener:
    return Listener()


class Socket:
    """Takes the bytes of ``writev`` up to a limit, and keeps the buffers as they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int = 10**9) -> None:
        self.limit = limit
        self.problem: type[OSError] | None = None
        self.taken = bytearray()
        self.buffers: list[Any] = []
        monkeypatch.setattr(module.os, "writev", self._writev)

    def _writev(self, descriptor: int, buffers: list[Any]) -> int:
        assert descriptor == SOCKET
        if self.problem is not None:
            raise self.problem
        if self.limit < 0:
            raise BlockingIOError
        self.buffers += buffers
        taken = b"".join(buffers)[: self.limit]
        self.taken += taken
        return len(taken)


def fetch_response(records: bytes) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(0, records=records)])])


def test_record_sets_go_to_the_socket_in_the_buffer_that_the_log_read(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 5 of the connection: not joined with the rest, nor copied to the transport."""
    records = bytes(1_000)
    listener.handlers[FETCH] = lambda *_: fetch_response(records)
    socket = Socket(monkeypatch)
    client = Client(listener, PlainTransport())
    client.send(request(FETCH, FetchRequest()))
    assert any(buffer is records for buffer in socket.buffers)
    assert not client.transport.written


@pytest.mark.parametrize("limit", [-1, *range(140)])
def test_the_transport_writes_what_the_socket_does_not_take(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Wherever the socket stops, within a buffer or between two, no byte is lost, repeated or out of order."""
    listener.handlers[FETCH] = lambda *_: fetch_response(bytes(range(60)))
    plain = Client(listener)
    plain.send(request(FETCH, FetchRequest()))
    socket = Socket(monkeypatch, limit)
    client = Client(listener, PlainTransport())
    client.send(request(FETCH, FetchRequest()))
    assert len(plain.transport.written) < 140
    assert socket.taken + client.transport.written == plain.transport.written


@pytest.mark.parametrize("reason", ["unwritten", "is_ending"])
def test_nothing_overtakes_what_the_transport_has_still_to_write(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Bytes that wait in the transport go first; a transport that is closing decides itself what it still sends."""
    listener.handlers[METADATA] = lambda *_: MetadataResponse()
    socket = Socket(monkeypatch)
    transport = PlainTransport()
    client = Client(listener, transport)
    setattr(transport, reason, 1)
    client.send(request(METADATA, MetadataRequest()))
    assert not socket.taken
    assert client.correlation_ids() == [1]


class DeadTransport(PlainTransport):
    """Meets the error of a dead socket at its first write and is closing from then on, as asyncio's transports."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: Any) -> None:
        self.writes += 1
        self.is_ending = True


def test_a_dead_socket_is_written_to_once(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write ends the connection; after four more each would be a warning of asyncio's in the broker's log."""
    partitions = [PartitionData(number, records=bytes(10)) for number in range(8)]
    listener.handlers[FETCH] = lambda *_: FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])
    socket = Socket(monkeypatch)
    socket.problem = BrokenPipeError
    transport = DeadTransport()
    Client(listener, transport).send(request(FETCH, FetchRequest()))
    assert transport.writes == 1
