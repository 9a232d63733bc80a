"""A request whose handler fails unexpectedly: its own error in its own response, and nothing else is harmed.

Rule: ``KafkaApis.handle`` and ``RequestHandlerHelper.handleError``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka_peer import Client, Listener
from sample_requests import each_request, sample

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import API_VERSIONS, APIS, CONTROLLED_SHUTDOWN, CREATE_TOPICS, FETCH, METADATA, PRODUCE
from tidegauge.kafka.frames import decode, encode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidegauge.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidegauge_broker.server.wire.kafka.responses import Held, Pending
from tidegauge_broker.server.wire.kafka.served import SERVED

UNKNOWN = int(ErrorCode.UNKNOWN_SERVER_ERROR)
SAMPLES = [(key, version) for key, version, kind in each_request() if kind == "full"]
PRIVATE = "what only the log may say"


class Defect(Exception):
    """No exception that a handler expects."""


def frame(key: int, version: int, correlation_id: int, message: Any) -> bytes:
    return joined(request_frame(key, version, correlation_id, "a-client", message))


def metadata(correlation_id: int) -> bytes:
    return frame(METADATA, 9, correlation_id, MetadataRequest())


def produce(correlation_id: int, acks: int = 1) -> bytes:
    topics = [TopicProduceData("t", partition_data=[PartitionProduceData(0), PartitionProduceData(3)])]
    return frame(PRODUCE, 9, correlation_id, ProduceRequest(None, acks, topic_data=topics))


def message_of(key: int, version: int, data: memoryview) -> Any:
    _, offset = read_response_header(key, version, data)
    message, end = decode(key, version, data, offset, response=True)
    assert end == len(data)
    return message


@pytest.fixture
def listener() -> Listener:
    made = Listener()
    made.handlers[METADATA] = lambda *_: MetadataResponse()
    return made


def fails(*_: Any) -> Any:
    raise Defect(PRIVATE)


async def fails_later(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise Defect(PRIVATE)


def fails_in_future(*_: Any) -> Any:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, Defect(PRIVATE))
    return Pending(future, lambda result: result)


def fails_to_respond(*_: Any) -> Any:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, 1)
    return Pending(future, fails)


def has_no_form(*_: Any) -> Any:
    return object()  # can't be encoded


WAYS = {
    "at once": fails,
    "later": fails_later,
    "in a future": fails_in_future,
    "in its response": fails_to_respond,
    "in the codec": has_no_form,
}


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("key", "version"), SAMPLES)
async def test_every_api_and_version_responds_with_its_error_and_the_connection_goes_on(
    listener: Listener, key: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    request = sample(key, version, "full")
    listener.max_request_bytes = 10**6
    for way, handler in WAYS.items():
        served = {METADATA: listener.handlers[METADATA], key: handler}
        listener.handlers = served
        caplog.clear()
        client = Client(listener)
        client.send(frame(key, version, 7, request))
        await turns()
        [(correlation_id, data)] = client.responses()
        assert correlation_id == 7, way
        expected = message_of(key, version, framed(key, version, SERVED[key].refusal(version, request, UNKNOWN)))
        assert repr_of(message_of(key, version, data)) == repr_of(expected), way
        assert client.transport.ended is None
        [logged] = caplog.records
        assert logged.exc_info is not None, "with its traceback"
        assert PRIVATE.encode() not in bytes(data), "the words of an exception stay in the log"
        assert APIS[key].name in logged.message
        if key != METADATA:
            client.send(metadata(8))
            assert client.correlation_ids() == [8], way
        listener.handlers = {METADATA: lambda *_: MetadataResponse()}


def framed(key: int, version: int, message: Any) -> memoryview:
    """The message as the client gets it, behind a response's header."""
    header = 5 if APIS[key].is_flexible(version) and key != API_VERSIONS else 4
    return memoryview(bytes(header) + joined(encode(key, version, message)))


def repr_of(message: Any) -> str:
    """Describe a message's content; a view of bytes has no value of its own in its text."""
    records = [
        bytes(one.records or b"")
        for topic in getattr(message, "responses", ())
        for one in getattr(topic, "partitions", ())
        if hasattr(one, "records")
    ]
    for topic in getattr(message, "responses", ()):
        for one in getattr(topic, "partitions", ()):
            if hasattr(one, "records"):
                one.records = b""
    return f"{message!r} {records}"


async def test_the_exception_of_an_error_of_kafka_gives_that_error_and_its_words(listener: Listener) -> None:
    def refuses(*_: Any) -> Any:
        raise TidegaugeError(ErrorCode.POLICY_VIOLATION, "no topic of this name")

    listener.handlers[CREATE_TOPICS] = refuses
    client = Client(listener)
    client.send(frame(CREATE_TOPICS, 7, 1, CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")])))
    [(_, data)] = client.responses()
    topics = message_of(CREATE_TOPICS, 7, data).topics
    assert [(one.name, one.error_code, one.error_message) for one in topics] == [
        ("a", ErrorCode.POLICY_VIOLATION, "no topic of this name"),
        ("b", ErrorCode.POLICY_VIOLATION, "no topic of this name"),
    ]


async def test_a_produce_with_acks_0_that_fails_closes_its_connection(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """ProduceRequest.getErrorResponse is null, so handleError closes the connection."""
    listener.handlers[PRODUCE] = fails
    client = Client(listener)
    client.send(produce(1, acks=0) + metadata(2))
    assert (client.correlation_ids(), client.transport.ended) == ([], "closed")
    assert len([one for one in caplog.records if one.exc_info]) == 1


async def test_produces_before_and_behind_one_that_fails_are_responded_to_in_order(listener: Listener) -> None:
    futures: list[asyncio.Future[int]] = []

    def append(*_: Any) -> Any:
        if len(futures) == 1:
            futures.append(asyncio.get_running_loop().create_future())
            raise Defect
        futures.append(asyncio.get_running_loop().create_future())
        return Pending(futures[-1], lambda _: ProduceResponse())

    listener.handlers[PRODUCE] = append
    client = Client(listener)
    client.send(produce(1) + produce(2) + produce(3) + metadata(4))
    assert client.correlation_ids() == [], "the second waits for the first"
    futures[2].set_result(1)
    await turns()
    assert client.correlation_ids() == []
    futures[0].set_result(1)
    await turns()
    found = client.responses()
    assert [number for number, _ in found] == [1, 2, 3, 4]
    [topic] = message_of(PRODUCE, 9, found[1][1]).responses
    assert topic.name == "t"
    assert [(one.index, one.error_code) for one in topic.partition_responses] == [(0, UNKNOWN), (3, UNKNOWN)]
    assert list(message_of(PRODUCE, 9, found[2][1]).responses) == [], "the response of its own handler"
    assert client.connection.is_idle


@pytest.mark.parametrize("way", ["at once", "in the codec"])
@pytest.mark.parametrize(
    ("key", "request_of_it", "name"),
    [
        (METADATA, MetadataRequest(), "Metadata"),
        (PRODUCE, ProduceRequest(None, 1), "Produce"),
        (FETCH, FetchRequest(), "FetchConsumer"),
        (FETCH, FetchRequest(replica_id=1), "FetchFollower"),
    ],
)
async def test_a_failed_request_is_counted_once_with_its_error(
    listener: Listener, way: str, key: int, request_of_it: Any, name: str
) -> None:
    counted: list[tuple[str, set[int]]] = []
    listener.responded = lambda _caller, api, _took_ms, errors: counted.append((api, errors))
    listener.handlers[key] = WAYS[way]
    Client(listener).send(frame(key, 9, 1, request_of_it))
    await turns()
    assert counted == [(name, {UNKNOWN})]


class Pended:
    """A response that counts until it is released."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


async def test_the_memory_of_a_response_that_cannot_be_encoded_is_given_back(listener: Listener) -> None:
    pending = Pended()
    topics = [FetchableTopicResponse("x" * 2**16)]
    listener.handlers[FETCH] = lambda *_: Held(FetchResponse(responses=topics), pending)  # type: ignore[arg-type] - as much of it
    client = Client(listener)
    client.send(frame(FETCH, 11, 1, FetchRequest()))
    [(_, data)] = client.responses()
    assert message_of(FETCH, 11, data).error_code == UNKNOWN
    assert pending.released == 1


async def test_api_versions_of_an_unknown_version_that_fails_is_responded_to_in_version_0(listener: Listener) -> None:
    listener.handlers[API_VERSIONS] = fails
    client = Client(listener)
    data = bytearray(frame(API_VERSIONS, 4, 1, ApiVersionsRequest("a-client", "1.0")))
    data[6:8] = (99).to_bytes(2, "big")
    client.send(bytes(data))
    [(_, found)] = client.responses()
    message, _ = decode(API_VERSIONS, 0, found, 4, response=True)
    assert message.error_code == UNKNOWN


async def test_a_failure_after_the_connection_has_ended_is_logged_and_not_swallowed(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    listener.handlers[METADATA] = lambda *_: Pending(future, lambda result: result)
    client = Client(listener)
    client.send(metadata(1))
    client.connection.close()
    future.set_exception(Defect(PRIVATE))
    await turns()
    [logged] = caplog.records
    assert logged.exc_info is not None
    assert client.correlation_ids() == []


async def test_a_failure_whose_own_response_fails_closes_the_connection(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegauge_broker.server.wire.kafka.served_api.ServedApi.refusal", fails)
    listener.handlers[METADATA] = fails
    client = Client(listener)
    client.send(metadata(1) + metadata(2))
    assert (client.correlation_ids(), client.transport.ended) == ([], "closed")
    assert len([one for one in caplog.records if one.exc_info]) == 2, "each of the two defects"


def test_the_sample_of_a_header_without_client_id_is_among_them() -> None:
    assert (CONTROLLED_SHUTDOWN, 0) in SAMPLES
