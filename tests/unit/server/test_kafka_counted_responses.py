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
from tidegauge_broker.server.wire.kafka.portions import in_portions
from tidegauge_broker.server.wire.kafka.responses import settled
from tidegauge_broker.server.wire.kafka.served import SERVED

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


async def turns() -> None:
    for _ in range(60):
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
