"""Responses that no client reads are bounded, of whatever API (queued.max.response.bytes)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_peer import Client, Listener, Transport

from tidegauge.kafka.apis import API_VERSIONS, DESCRIBE_CONFIGS, METADATA
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidegauge.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tidegauge_broker.server.service.pending_responses import PendingResponses
from tidegauge_broker.server.wire.kafka.connection import KafkaConnection
from tidegauge_broker.server.wire.kafka.portions import in_portions
from tidegauge_broker.server.wire.kafka.responses import settled
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.turns import MAX_LARGE_READS

LIMIT_BYTES = 100_000
CONTEXT: Any = SimpleNamespace()


class Bounded(Listener):
    """A listener whose unwritten responses are counted; its Metadata is of some 60,000 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.responses = PendingResponses(lambda: LIMIT_BYTES, lambda: LIMIT_BYTES, lambda: 0.0)
        self.handled = 0
        self.handlers[METADATA] = self._metadata
        self.handlers[API_VERSIONS] = lambda *_: ApiVersionsResponse()

    def _metadata(self, *_: Any) -> MetadataResponse:
        self.handled += 1
        return MetadataResponse(topics=[MetadataResponseTopic(name=f"{'t' * 60}{one}") for one in range(900)])


class Deaf(Transport):
    """A socket whose other side reads only when the test says so."""

    connection: Any = None

    def write(self, data: Any) -> None:
        super().write(data)
        self.connection.pause_writing()


def deaf_client(listener: Bounded) -> Client:
    transport = Deaf()
    client = Client(listener, transport)
    transport.connection = client.connection
    return client


def frame(*arguments: Any) -> bytes:
    return bytes(joined(request_frame(*arguments)))


def metadata() -> bytes:
    return frame(METADATA, 9, 1, "c", MetadataRequest(topics=[]))


@pytest.fixture
def listener() -> Bounded:
    return Bounded()


async def test_responses_that_no_client_reads_hold_the_limit_and_one_more(listener: Bounded) -> None:
    """``queued.max.response.bytes`` over all connections, as for Fetch; a small response is given all the same."""
    deaf = [deaf_client(listener) for _ in range(6)]
    for client in deaf[:3]:
        client.send(metadata())
    await turns()
    encoded = listener.responses.total_bytes
    assert LIMIT_BYTES // 2 < encoded <= LIMIT_BYTES + 70_000
    for client in deaf[3:]:
        client.send(metadata())
    await turns()
    assert (listener.handled, listener.responses.total_bytes) == (3, encoded)
    reader = Client(listener)
    reader.send(frame(API_VERSIONS, 3, 7, "c", ApiVersionsRequest("x", "1")))
    await turns()
    assert reader.responses()
    for _ in deaf:
        for client in deaf:
            client.connection.resume_writing()
        await turns()
    assert [len(client.responses()) for client in deaf] == [1] * len(deaf)
    assert listener.responses.total_bytes == 0
    listener.responses.close()


async def turns(count: int = 60) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_topic_named_two_thousand_times_is_described_once_in_small_portions() -> None:
    """The loop has a turn after each portion; the response has as many results as the request has resources."""
    asked: list[int] = []

    async def describe(request: DescribeConfigsRequest, _: Any) -> DescribeConfigsResponse:
        asked.append(len(request.resources))
        return DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_name=one.resource_name) for one in request.resources]
        )

    names = ["w"] * 2000 + [f"t{number}" for number in range(100)] + ["w"]
    request = DescribeConfigsRequest([DescribeConfigsResource(2, name) for name in names])
    response: Any = await settled(in_portions(SERVED[DESCRIBE_CONFIGS].division, describe)(request, CONTEXT))
    assert [one.resource_name for one in response.results] == names
    assert sum(asked) == 101
    assert max(asked) * SERVED[DESCRIBE_CONFIGS].division.weight <= 500
    assert len(frame(DESCRIBE_CONFIGS, 4, 1, "c", request)) > SERVED[DESCRIBE_CONFIGS].large_from_bytes


async def test_repeated_items_are_found_in_turns() -> None:
    """To name 20,000 resources takes 0.1 s; no turn of the event loop names more than a portion has (rule 5)."""
    named, most = [0], [0]

    class Resource(DescribeConfigsResource):
        def __repr__(self) -> str:
            named[0] += 1
            return f"t{named[0] % 3}"

    async def count() -> None:
        while True:
            before = named[0]
            await asyncio.sleep(0)
            most[0] = max(most[0], named[0] - before)

    async def describe(request: DescribeConfigsRequest, _: Any) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[DescribeConfigsResult() for _ in request.resources])

    counting = asyncio.get_running_loop().create_task(count())
    await asyncio.sleep(0)
    request = DescribeConfigsRequest([Resource(2, "t", None) for _ in range(5_000)])
    response: Any = await settled(in_portions(SERVED[DESCRIBE_CONFIGS].division, describe)(request, CONTEXT))
    await asyncio.sleep(0)
    counting.cancel()
    assert len(response.results) == 5_000
    assert 0 < most[0] <= 500
    assert named[0] == 5_000, "each once"


def configs_of(names: int) -> bytes:
    resources = [DescribeConfigsResource(2, f"topic-{one}") for one in range(names)]
    return frame(DESCRIBE_CONFIGS, 4, 1, "c", DescribeConfigsRequest(resources))


class Decodes:
    """Counts the requests of an API that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        decoded = KafkaConnection._decoded

        def counting(connection: KafkaConnection, slot: Any, frame: memoryview) -> Any:
            self.count += 1
            return decoded(connection, slot, frame)

        monkeypatch.setattr(KafkaConnection, "_decoded", counting)


async def test_a_request_that_waits_for_room_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 names take 14 KB in a frame and 300 KB decoded: a flood of them filled the memory of the broker."""
    listener, decodes = Bounded(), Decodes(monkeypatch)
    for _ in range(3):
        deaf_client(listener).send(metadata())
    await turns(200)
    before, handled = decodes.count, listener.handled
    for _ in range(50):
        deaf_client(listener).send(metadata())
    await turns(200)
    assert (decodes.count, listener.handled) == (before, handled)


async def test_a_flood_of_large_reads_is_decoded_and_handled_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka's num.io.threads bounds it; the others wait as frames, and each has its response."""
    listener, decodes = Bounded(), Decodes(monkeypatch)
    listener.responses = PendingResponses(lambda: 1 << 30, lambda: 1 << 30, lambda: 0.0)
    gate, most, now = asyncio.Event(), [0], [0]

    async def handle(*_: Any) -> DescribeConfigsResponse:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await gate.wait()
        now[0] -= 1
        return DescribeConfigsResponse()

    listener.handlers[DESCRIBE_CONFIGS] = handle
    clients = [Client(listener) for _ in range(30)]
    for client in clients:
        client.send(configs_of(3_000))
    await turns(2_000)
    assert most[0] == decodes.count == MAX_LARGE_READS
    small = Client(listener)
    small.send(frame(API_VERSIONS, 3, 2, "c", ApiVersionsRequest("c", "1")))
    assert small.correlation_ids() == [2], "others are served"
    gate.set()
    await turns(5_000)
    assert [client.correlation_ids() for client in clients] == [[1]] * len(clients)
    assert most[0] == MAX_LARGE_READS


async def test_a_client_that_leaves_gives_its_place_among_large_reads_back() -> None:
    listener = Bounded()
    waiting: list[asyncio.Future[Any]] = []

    async def handle(*_: Any) -> Any:
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    listener.handlers[DESCRIBE_CONFIGS] = handle
    clients = [Client(listener) for _ in range(MAX_LARGE_READS + 1)]
    for client in clients:
        client.send(configs_of(3_000))
    await turns(500)
    begun = len(waiting)
    clients[0].connection.connection_lost(None)
    await turns(500)
    assert len(waiting) > begun
