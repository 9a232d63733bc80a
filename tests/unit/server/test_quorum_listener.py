"""The CONTROLLER listener's connections: frames in, responses out, and what strangers send (SocketServer)."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from quorum_peer import Listening, Wire, give

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import API_VERSIONS
from tidegauge.kafka.frames import codec_of, joined
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import api_versions, describe_quorum, envelope
from tidegauge.listeners import parse_listeners
from tidegauge_broker.server.quorum import large_room
from tidegauge_broker.server.quorum.calls import Served
from tidegauge_broker.server.quorum.connection import QuorumConnection
from tidegauge_broker.server.quorum.listener import QuorumListener
from tidegauge_broker.server.wire.kafka.acceptor import Acceptor
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, LARGE_FRAME_BYTES


@pytest.fixture
def open_connection(monkeypatch: pytest.MonkeyPatch):
    """Opens a connection at a listener; returns both with the wire."""
    monkeypatch.setattr("tidegauge_broker.server.quorum.connection.asyncio.Transport", Wire)

    def opened(listening: Listening) -> tuple[QuorumConnection, Wire]:
        connection, wire = QuorumConnection(listening, lambda: 0.0), Wire()
        connection.connection_made(wire)  # type: ignore[arg-type]
        return connection, wire

    return opened


def request(key: int, version: int, message: Any, correlation_id: int = 7) -> bytes:
    return joined(codec_of(key, version, KRAFT_PROTOCOL).request_frame(correlation_id, "test", message))


DESCRIBE = request(apis.DESCRIBE_QUORUM, 2, describe_quorum.DescribeQuorumRequest())


def test_requests_of_a_connection_are_handled_one_at_a_time(open_connection):
    """Nothing more is read while a request waits: a Fetch may be parked for half a second."""
    listening = Listening()
    connection, wire = open_connection(listening)
    give(connection, DESCRIBE + DESCRIBE)
    assert len(listening.asked) == 1
    assert not wire.is_reading
    listening.asked[0].respond(describe_quorum.DescribeQuorumResponse())
    assert len(listening.asked) == 2
    assert struct.unpack_from(">i", wire.written, 4) == (7,)
    listening.asked[1].respond(describe_quorum.DescribeQuorumResponse())
    assert wire.is_reading


def test_a_client_that_does_not_read_is_given_no_further_response(open_connection):
    """Back-pressure: the next request begins when the responses before it were taken."""
    listening = Listening()
    connection, _ = open_connection(listening)
    connection.pause_writing()
    give(connection, DESCRIBE)
    assert listening.asked == []
    connection.resume_writing()
    assert len(listening.asked) == 1


def test_a_response_to_a_closed_connection_is_dropped(open_connection):
    listening = Listening()
    connection, wire = open_connection(listening)
    give(connection, DESCRIBE)
    connection.connection_lost(None)
    listening.asked[0].respond(describe_quorum.DescribeQuorumResponse())
    assert wire.written == b""


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 2_000),
        struct.pack(">i", -1),
        struct.pack(">ihhih", 10, 3, 12, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, apis.DESCRIBE_QUORUM, 9, 1, -1),
        struct.pack(">ihhih", 10, apis.VOTE, 0, 1, -1),
        struct.pack(">ih", 2, apis.DESCRIBE_QUORUM),
        DESCRIBE[:-1].replace(DESCRIBE[:4], struct.pack(">i", len(DESCRIBE) - 5), 1),
    ],
    ids=["too-large", "negative", "metadata", "unknown", "version", "not-served", "too-short", "cut-off"],
)
def test_what_is_no_request_closes_the_connection_and_nothing_else(open_connection, data: bytes):
    """SocketServer: one line in the log; the listener goes on."""
    listening = Listening()
    connection, wire = open_connection(listening)
    give(connection, data)
    assert wire.is_closed
    assert wire.written == b""


def test_api_versions_of_an_unknown_version_is_responded_to_in_version_0(open_connection):
    """KIP-511: the body is not read, and the client learns which versions there are."""
    listening = Listening()
    connection, wire = open_connection(listening)
    give(connection, struct.pack(">ihhihb", 11, API_VERSIONS, 99, 5, -1, 0))
    call = listening.asked[0]
    assert (call.version, call.message) == (-1, None)
    row = api_versions.ApiVersion(API_VERSIONS, 0, 4)
    call.respond(api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row]))
    found, _ = codec_of(API_VERSIONS, 0, KRAFT_PROTOCOL).decode_response(memoryview(wire.written), 8)
    assert (found.error_code, found.api_keys) == (ErrorCode.UNSUPPORTED_VERSION, [row])


def test_a_defect_of_a_handler_costs_its_connection(open_connection):
    """The listener serves the others."""
    listening = Listening()

    def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    listening.handlers[apis.DESCRIBE_QUORUM] = Served(apis.DESCRIBE_QUORUM, fails)
    connection, wire = open_connection(listening)
    give(connection, DESCRIBE)
    assert wire.is_closed


def test_a_connection_too_many_is_closed_at_once(open_connection):
    _, wire = open_connection(Listening(has_room=False))
    assert wire.is_closed


def large(topics: int) -> bytes:
    named = [describe_quorum.TopicData(f"topic-{one}", [describe_quorum.PartitionData(one)]) for one in range(topics)]
    return request(apis.DESCRIBE_QUORUM, 2, describe_quorum.DescribeQuorumRequest(named))


async def turns_until(holds: Callable[[], bool]) -> int:
    """Return how many turns of the event loop something took."""
    for turns in range(1000):
        if holds():
            return turns
        await asyncio.sleep(0)
    raise AssertionError("it does not come to hold")


async def test_a_large_request_and_a_large_response_leave_the_loop_to_other_connections(open_connection):
    """Kafka's listener has threads; here the loop turns after every so many items."""
    listening = Listening(max_request_bytes=1 << 20)
    connection, wire = open_connection(listening)
    other, _ = open_connection(listening)
    give(connection, large(10 * ITEMS_PER_TURN))
    give(other, DESCRIBE)
    assert [len(call.message.topics) for call in listening.asked] == [0], "the other's is handled meanwhile"
    assert await turns_until(lambda: len(listening.asked) == 2) >= 20
    call = listening.asked[1]
    assert (len(call.message.topics), call.is_large, wire.is_reading) == (10 * ITEMS_PER_TURN, True, False)
    topics = [describe_quorum.ResponseTopicData(one.topic_name, []) for one in call.message.topics]
    call.respond(describe_quorum.DescribeQuorumResponse(topics=topics))
    assert not wire.written
    assert await turns_until(lambda: bool(wire.written)) >= 10
    codec = codec_of(apis.DESCRIBE_QUORUM, 2, KRAFT_PROTOCOL)
    _, body_at, _ = codec.read_response_header(memoryview(wire.written)[4:])
    assert len(codec.decode_response(memoryview(wire.written)[4:], body_at)[0].topics) == 10 * ITEMS_PER_TURN
    assert wire.is_reading


async def test_a_large_frame_that_is_no_message_closes_its_connection_alone(open_connection):
    listening = Listening(max_request_bytes=1 << 20)
    connection, wire = open_connection(listening)
    _, other_wire = open_connection(listening)
    data = bytearray(large(10 * ITEMS_PER_TURN))
    data[-3:] = b"\xff\xff\xff"
    give(connection, bytes(data))
    await turns_until(lambda: wire.is_closed)
    assert (listening.asked, other_wire.is_closed) == ([], False)


async def test_a_connection_that_ends_while_its_request_is_decoded_is_asked_for_nothing(open_connection):
    listening = Listening(max_request_bytes=1 << 20)
    connection, _ = open_connection(listening)
    give(connection, large(10 * ITEMS_PER_TURN))
    connection.connection_lost(None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not listening.asked


@pytest.mark.parametrize(("idle_seconds", "is_closed"), [(-0.001, False), (0.0, True)])
async def test_an_idle_connection_is_closed_unless_the_limit_is_below_0(
    idle_seconds: float, is_closed: bool, monkeypatch: pytest.MonkeyPatch, open_connection
):
    """connections.max.idle.ms=-1 is Kafka's never."""
    monkeypatch.setattr(Acceptor, "start", start := AsyncMock())
    monkeypatch.setattr(Acceptor, "stop", AsyncMock())
    [at] = parse_listeners("CONTROLLER://127.0.0.1:1", "listeners")
    listener = QuorumListener(at, {}, 1000, idle_seconds, lambda: 0)
    connection, wire = open_connection(listener)
    connection.used_seconds = -1.0
    await listener.open()
    start.assert_awaited_once()
    assert wire.is_closed == is_closed
    await listener.close()


@pytest.fixture(autouse=True)
def objects_settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_room, "SETTLE_SECONDS", 0)


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_there_is_one_large_request_at_a_time_from_its_message_to_its_response(open_connection):
    """A hundred connections with a message of 99,000 items each would take 10 GB."""
    listening = Listening(max_request_bytes=1 << 20)
    connections = [open_connection(listening)[0] for _ in range(3)]
    for connection in connections:
        give(connection, large(10 * ITEMS_PER_TURN))
    await turns()
    assert len(listening.asked) == 1
    assert not gc.isenabled(), "a collection would walk over the message, of which nothing is garbage"
    listening.asked[0].respond(describe_quorum.DescribeQuorumResponse())
    await turns()
    assert len(listening.asked) == 2
    connections[1].connection_lost(None)
    await turns()
    assert len(listening.asked) == 3, "a connection that closes makes room, too"
    listening.asked[1].respond(describe_quorum.DescribeQuorumResponse())
    listening.asked[2].respond(describe_quorum.DescribeQuorumResponse())
    await turns()
    assert gc.isenabled()


async def test_a_large_envelope_has_the_room_for_what_it_holds(open_connection):
    """It is one item itself, and decoded at once; the forwarded request inside has all of them."""
    listening = Listening(max_request_bytes=1 << 20)
    listening.handlers[apis.ENVELOPE] = Served(apis.ENVELOPE, listening.asked.append)
    message = envelope.EnvelopeRequest(bytes(LARGE_FRAME_BYTES), b"", bytes(4))
    (first, _), (second, _) = open_connection(listening), open_connection(listening)
    for connection in (first, second):
        give(connection, request(apis.ENVELOPE, 0, message))
    await turns()
    assert [call.is_large for call in listening.asked] == [True]
    listening.asked[0].respond(envelope.EnvelopeResponse())
    await turns()
    assert len(listening.asked) == 2
    second.connection_lost(None)


async def test_a_large_request_that_waits_for_room_when_its_connection_closes_is_dropped(open_connection):
    listening = Listening(max_request_bytes=1 << 20)
    (first, _), (second, _) = open_connection(listening), open_connection(listening)
    give(first, large(10 * ITEMS_PER_TURN))
    give(second, large(10 * ITEMS_PER_TURN))
    await turns()
    second.connection_lost(None)
    first.connection_lost(None)
    await turns()
    assert len(listening.asked) == 1
    assert gc.isenabled()


async def test_collections_come_again_though_a_large_request_waits_for_long(
    open_connection, monkeypatch: pytest.MonkeyPatch
):
    """Such as for a majority of the quorum: garbage may not pile up meanwhile."""
    monkeypatch.setattr(large_room, "COLLECTIONS_OFF_SECONDS", 0)
    listening = Listening(max_request_bytes=1 << 20)
    connection, _ = open_connection(listening)
    give(connection, large(10 * ITEMS_PER_TURN))
    await turns()
    assert len(listening.asked) == 1
    assert gc.isenabled()
    connection.connection_lost(None)
