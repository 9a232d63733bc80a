"""A connection of Kafka's protocol: frames split anywhere, responses in order, back-pressure, and what closes it."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from kafka_peer import Client, Listener

from tidegauge.kafka import frames
from tidegauge.kafka.apis import API_VERSIONS, FETCH, METADATA, PRODUCE, Protocol
from tidegauge.kafka.frames import (
    ApiCodec,
    codec_of,
    decode,
    joined,
    read_response_header,
    request_frame,
)
from tidegauge.kafka.header_tags import NO_TAGS, Tags
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.fetch import FetchRequest, FetchResponse
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidegauge.logical_clock import LogicalClock
from tidegauge_broker.server.wire.kafka import slot
from tidegauge_broker.server.wire.kafka.connection import MAX_UNACKED_PRODUCES
from tidegauge_broker.server.wire.kafka.handlers.api_versions import handler_for
from tidegauge_broker.server.wire.kafka.request import CloseConnection
from tidegauge_broker.server.wire.kafka.responses import SILENT, Held, Pending


def request(key: int, correlation_id: int, message: Any, version: int = 9) -> bytes:
    return joined(request_frame(key, version, correlation_id, "test", message))


def metadata(correlation_id: int) -> bytes:
    return request(METADATA, correlation_id, MetadataRequest())


def produce(correlation_id: int, transactional_id: str | None = None) -> bytes:
    return request(PRODUCE, correlation_id, ProduceRequest(transactional_id))


@pytest.fixture
def listener() -> Listener:
    made = Listener()
    made.handlers[METADATA] = lambda *_: MetadataResponse()
    return made


@pytest.mark.parametrize("piece", [1, 3, 7, 64, 10**9])
def test_frames_may_come_in_any_pieces(listener: Listener, piece: int) -> None:
    client = Client(listener)
    client.send(b"".join(metadata(number) for number in range(5)), piece)
    assert client.correlation_ids() == list(range(5))


def test_the_codec_of_a_request_is_looked_up_once(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot keeps it for the response and the response's header."""
    asked: list[tuple[int, int]] = []

    def noted(key: int, version: int, *protocol: Protocol) -> ApiCodec:
        asked.append((key, version))
        return codec_of(key, version, *protocol)

    monkeypatch.setattr(slot, "codec_of", noted)
    monkeypatch.setattr(frames, "codec_of", noted)
    client = Client(listener)
    sent = metadata(1) + request(PRODUCE, 2, ProduceRequest())
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    asked.clear()
    client.send(sent)
    assert client.correlation_ids() == [1, 2]
    assert asked == [(METADATA, 9), (PRODUCE, 9)]


@pytest.mark.parametrize("piece", [1_000, 100_000, 10**9])
def test_a_large_frame_gets_a_buffer_of_its_own_and_what_follows_it_is_read(listener: Listener, piece: int) -> None:
    seen = []

    def append(message: ProduceRequest, _: Any) -> ProduceResponse:
        seen.append(len(message.topic_data[0].partition_data[0].records or b""))
        return ProduceResponse()

    listener.handlers[PRODUCE] = append
    client = Client(listener)
    topics = [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"x" * 500_000)])]
    large = request(PRODUCE, 2, ProduceRequest(None, topic_data=topics))
    client.send(metadata(1) + large + metadata(3), piece)
    assert client.correlation_ids() == [1, 2, 3]
    assert seen == [500_000]


def test_an_announced_size_takes_no_memory_before_bytes_come(listener: Listener) -> None:
    listener.max_request_bytes = 2**31 - 1
    client = Client(listener)
    client.send(struct.pack(">i", 2**31 - 1) + b"\0\0\0\x09")
    assert len(client.connection.get_buffer(-1)) <= 32 * 1024


@pytest.mark.parametrize("size", [-1, 0, 1_000_001, 2**31 - 1])
def test_a_frame_of_a_wrong_size_closes_after_what_came_before_it(listener: Listener, size: int) -> None:
    client = Client(listener)
    client.send(metadata(1) + struct.pack(">i", size) + b"abc")
    assert client.correlation_ids() == [1]
    assert client.transport.ended == "closed"


def test_a_grpc_client_is_named_in_the_log(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(listener)
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert client.transport.ended == "closed"
    [line] = caplog.messages
    assert "an HTTP/2 client, such as gRPC's, on a listener of Kafka's protocol" in line


@pytest.mark.parametrize("hello", [b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x03\x00\xf8\x01"])
def test_a_tls_client_at_a_port_of_plain_text_is_named_in_the_log(
    listener: Listener, caplog: pytest.LogCaptureFixture, hello: bytes
) -> None:
    """Its first record would be a frame of some 350 MB, above socket.request.max.bytes."""
    client = Client(listener)
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        client.send(hello)
    assert client.transport.ended == "closed"
    [line] = caplog.messages
    assert "a TLS client on a listener of plain text; give the client the port of an SSL listener" in line


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),  # no such API
        struct.pack(">hhih", METADATA, 99, 1, -1),  # no such version
        struct.pack(">hhih", FETCH, 4, 1, -1),  # not served here
        struct.pack(">hhih", METADATA, 1, 1, -1) + b"\x7f\xff\xff\xff",  # an array that is not there
        struct.pack(">hhih", METADATA, 1, 1, 100) + b"short",  # the header ends too early
        struct.pack(">hhih", PRODUCE, 9, 1, -1) + b"\0\x81\x80\x02" + b"x" * 2**15 + b"\0\1\0\0\0\1\1\0",  # a long id
        b"\0",
    ],
)
def test_what_cannot_be_read_or_is_not_served_closes_without_a_response(
    listener: Listener, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(listener)
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        client.send(struct.pack(">i", len(frame)) + frame)
    assert (client.correlation_ids(), client.transport.ended) == ([], "closed")
    assert len(caplog.messages) == 1
    client.send(metadata(5))
    assert client.correlation_ids() == [], "nothing more is handled"


def test_api_versions_of_an_unknown_version_is_responded_to_in_version_0(listener: Listener) -> None:
    """KIP-511: the client reads the versions out of it and tries again; franz-go begins every connection so."""
    listener.handlers[API_VERSIONS] = handler_for([METADATA, API_VERSIONS])
    client = Client(listener)
    body = struct.pack(">hhih", API_VERSIONS, 5, 7, -1) + b"\0" + b"not a body that version 4 could read"
    client.send(struct.pack(">i", len(body)) + body)
    [(correlation_id, frame)] = client.responses()
    message, end = decode(API_VERSIONS, 0, frame, 4, response=True)
    assert (correlation_id, message.error_code, end) == (7, 35, len(frame))
    assert [(key.api_key, key.min_version, key.max_version) for key in message.api_keys] == [(18, 0, 4)]


def test_the_response_header_of_api_versions_is_never_flexible(listener: Listener) -> None:
    listener.handlers[API_VERSIONS] = handler_for([METADATA, API_VERSIONS])
    client = Client(listener)
    client.send(request(API_VERSIONS, 1, ApiVersionsRequest("a-client", "1.0"), 4))
    [(_, frame)] = client.responses()
    assert read_response_header(API_VERSIONS, 4, frame) == (1, 4)
    message, _ = decode(API_VERSIONS, 4, frame, 4, response=True)
    assert [key.api_key for key in message.api_keys] == [METADATA, API_VERSIONS]


def test_a_brokers_request_advances_the_clock_before_it_is_handled_and_the_response_carries_it(
    listener: Listener,
) -> None:
    """Lamport: what a message causes is stamped later than all that its sender had noted."""
    clock = listener.logical_clock = LogicalClock(lambda: 1_000)
    seen: list[int] = []
    listener.handlers[METADATA] = lambda *_: seen.append(clock.tick()) or MetadataResponse()
    client = Client(listener)
    client.send(joined(request_frame(METADATA, 12, 1, "broker-2-x", MetadataRequest(), Tags(5_000))))
    assert seen == [5_001]
    [(_, frame)] = client.responses()
    assert codec_of(METADATA, 12).read_response_header(frame)[2] == Tags(5_001)


@pytest.mark.parametrize("tags", [NO_TAGS, Tags(5_000)], ids=["no clock", "a clock"])
def test_a_listener_of_clients_alone_neither_takes_nor_gives_a_clock(listener: Listener, tags: Tags) -> None:
    client = Client(listener)
    client.send(joined(request_frame(METADATA, 12, 1, "broker-2-x", MetadataRequest(), tags)))
    [(_, frame)] = client.responses()
    assert codec_of(METADATA, 12).read_response_header(frame)[2] == NO_TAGS


def test_a_request_without_a_clock_gets_a_response_without_one(listener: Listener) -> None:
    """A client's response has the bytes that Kafka's has."""
    listener.logical_clock = LogicalClock(lambda: 1_000)
    client = Client(listener)
    client.send(joined(request_frame(METADATA, 12, 1, "a-client", MetadataRequest())))
    [(_, frame)] = client.responses()
    assert codec_of(METADATA, 12).read_response_header(frame)[1:] == (5, NO_TAGS)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n"])
def test_a_bad_software_name_is_an_invalid_request(listener: Listener, name: str) -> None:
    listener.handlers[API_VERSIONS] = handler_for([API_VERSIONS])
    client = Client(listener)
    client.send(request(API_VERSIONS, 1, ApiVersionsRequest(name, "1.0"), 3))
    [(_, frame)] = client.responses()
    message, _ = decode(API_VERSIONS, 3, frame, 4, response=True)
    assert (message.error_code, list(message.api_keys)) == (42, [])


async def test_a_request_waits_for_the_one_before_it(listener: Listener) -> None:
    """As in Kafka: a Metadata behind a long Fetch waits for it."""
    fetched: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

    async def fetch(*_: Any) -> FetchResponse:
        return await fetched

    listener.handlers[FETCH] = fetch
    client = Client(listener)
    client.send(request(FETCH, 1, FetchRequest(), 12) + metadata(2))
    await asyncio.sleep(0)
    assert client.correlation_ids() == []
    assert not client.transport.is_reading, "nothing is read while a request waits for its turn"
    fetched.set_result(FetchResponse())
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.correlation_ids() == [1, 2]
    assert client.transport.is_reading


async def test_produces_are_appended_in_order_while_earlier_ones_wait_and_responses_keep_the_order(
    listener: Listener,
) -> None:
    waiting: list[asyncio.Future[int]] = []

    def append(*_: Any) -> Pending:
        waiting.append(asyncio.get_running_loop().create_future())
        return Pending(waiting[-1], lambda _: ProduceResponse())

    listener.handlers[PRODUCE] = append
    client = Client(listener)
    client.send(produce(1) + produce(2) + produce(3) + metadata(4))
    assert len(waiting) == 3
    waiting[1].set_result(0)
    await asyncio.sleep(0)
    assert client.correlation_ids() == [], "the second must not overtake the first"
    waiting[0].set_result(0)
    await asyncio.sleep(0)
    assert client.correlation_ids() == [1, 2]
    waiting[2].set_result(0)
    await asyncio.sleep(0)
    assert client.correlation_ids() == [3, 4], "another API waits for all Produces before it"


async def test_unacknowledged_produces_are_limited(listener: Listener) -> None:
    waiting: list[asyncio.Future[int]] = []

    def append(*_: Any) -> Pending:
        waiting.append(asyncio.get_running_loop().create_future())
        return Pending(waiting[-1], lambda _: ProduceResponse())

    listener.handlers[PRODUCE] = append
    client = Client(listener)
    client.send(b"".join(produce(number) for number in range(MAX_UNACKED_PRODUCES + 5)))
    assert len(waiting) == MAX_UNACKED_PRODUCES
    assert not client.transport.is_reading
    waiting[0].set_result(0)
    await asyncio.sleep(0)
    assert len(waiting) == MAX_UNACKED_PRODUCES + 1


def test_no_request_begins_while_the_client_does_not_read(listener: Listener) -> None:
    client = Client(listener)
    client.connection.pause_writing()
    client.send(metadata(1))
    assert client.correlation_ids() == []
    assert not client.transport.is_reading
    client.connection.resume_writing()
    assert client.correlation_ids() == [1]
    assert client.transport.is_reading


def test_a_response_counts_until_its_client_has_read_it(listener: Listener) -> None:
    """queued.max.response.bytes holds for this wire too."""
    pending = Pended()
    listener.handlers[METADATA] = lambda *_: Held(MetadataResponse(), pending)  # type: ignore[arg-type] - as much of it
    client = Client(listener)
    assert client.transport.limits == (1, 0), "so that the transport says when everything is written"
    client.send(metadata(1))
    assert pending.released == 1
    client.transport.write = lambda _: client.connection.pause_writing()  # type: ignore[method-assign] - a slow one
    client.send(metadata(2))
    assert pending.released == 1
    client.connection.resume_writing()
    assert pending.released == 2
    client.send(metadata(3))
    client.connection.connection_lost(None)
    assert pending.released == 3


class Pended:
    """Counts its releases."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_acks_0_gets_no_response_and_an_error_closes(listener: Listener) -> None:
    outcomes: list[Any] = [SILENT, CloseConnection("acks=0 failed")]

    def append(*_: Any) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    listener.handlers[PRODUCE] = append
    client = Client(listener)
    client.send(produce(1) + metadata(2))
    assert client.correlation_ids() == [2]
    client.send(produce(3) + metadata(4))
    assert (client.correlation_ids(), client.transport.ended) == ([], "closed")


async def test_a_client_that_goes_leaves_nothing_waiting(listener: Listener) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    listener.handlers[PRODUCE] = lambda *_: Pending(future, lambda _: ProduceResponse())
    client = Client(listener)
    client.send(produce(1))
    client.connection.connection_lost(None)
    assert future.cancelled()
    assert listener.gone == [client.connection]
    await asyncio.sleep(0)
    assert client.correlation_ids() == []


async def test_a_response_that_comes_when_its_connection_has_been_closed_counts_no_longer(listener: Listener) -> None:
    """A parked fetch holds memory from when its records are read."""
    pending = Pended()
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    listener.handlers[METADATA] = lambda *_: Pending(future, lambda _: Held(MetadataResponse(), pending))  # type: ignore[arg-type] - as much of it
    client = Client(listener)
    client.send(metadata(1))
    client.connection.close()
    future.set_result(1)
    await asyncio.sleep(0)
    assert pending.released == 1


def test_a_listener_without_room_ends_the_connection_at_once(listener: Listener) -> None:
    listener.room = False
    assert Client(listener).transport.ended == "aborted"
