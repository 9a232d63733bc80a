"""Large messages of Kafka's protocol leave the event loop to other connections while they are decoded and handled."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_peer import Client, Listener

from tidegauge.kafka.apis import APIS, LIST_OFFSETS, METADATA, PRODUCE, message_class
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidegauge.kafka.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidegauge_broker.server.wire.kafka.portions import in_portions, portions
from tidegauge_broker.server.wire.kafka.responses import SILENT, Pending
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, LARGE_FRAME_BYTES, Turns

CONTEXT: Any = SimpleNamespace()


def offsets_request(count: int, topics: int = 1) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(f"t{topic}", [ListOffsetsPartition(number) for number in range(count)])
            for topic in range(topics)
        ]
    )


def list_offsets(request: ListOffsetsRequest, _: Any) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(one.partition_index, offset=one.partition_index)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def sent(client: Client, key: int, version: int, correlation_id: int, message: Any) -> None:
    client.send(joined(request_frame(key, version, correlation_id, "test", message)))


async def turns_until(is_true: Callable[[], object]) -> int:
    """Return after how many turns of the event loop something is true."""
    for turns in range(100_000):
        if is_true():
            return turns
        await asyncio.sleep(0)
    raise AssertionError("it is not true yet")


@pytest.fixture
def listener() -> Listener:
    made = Listener()
    made.handlers |= {METADATA: lambda *_: MetadataResponse(), LIST_OFFSETS: list_offsets}
    return made


async def test_another_connection_is_served_between_the_slices_of_a_large_request(listener: Listener) -> None:
    """Kafka has several request handlers; here one event loop serves all connections."""
    large, small = Client(listener), Client(listener)
    sent(large, LIST_OFFSETS, 6, 1, offsets_request(10_000))
    served = 0
    while not (found := large.responses()):
        sent(small, METADATA, 9, 2, MetadataRequest())
        served += len(small.responses())
        await asyncio.sleep(0)
    slices = 10_000 // ITEMS_PER_TURN
    assert served >= 3 * slices, "one for each slice that is decoded, handled and encoded"
    frame = found[0][1]
    _, at = read_response_header(LIST_OFFSETS, 6, frame)
    response, _ = decode(LIST_OFFSETS, 6, frame, at, response=True)
    assert [one.offset for one in response.topics[0].partitions] == list(range(10_000))


LARGE = PartitionProduceData(0, b"x" * 2 * LARGE_FRAME_BYTES)
LARGE_PRODUCE = ProduceRequest(None, topic_data=[TopicProduceData("t", partition_data=[LARGE])])


async def test_a_request_that_is_not_large_takes_no_turn_of_the_event_loop(listener: Listener) -> None:
    client = Client(listener)
    sent(client, LIST_OFFSETS, 6, 1, offsets_request(ITEMS_PER_TURN // 2))
    assert client.correlation_ids() == [1]
    sent(client, PRODUCE, 9, 2, LARGE_PRODUCE)
    assert client.transport.ended == "closed", "not served here"
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    client = Client(listener)
    sent(client, PRODUCE, 9, 2, LARGE_PRODUCE)
    assert client.correlation_ids() == [2], "many bytes, and few items"


async def test_a_large_response_to_a_small_request_is_encoded_in_slices(listener: Listener) -> None:
    listener.handlers[LIST_OFFSETS] = lambda _, context: list_offsets(offsets_request(5_000), context)
    client = Client(listener)
    sent(client, LIST_OFFSETS, 6, 1, offsets_request(1))
    assert await turns_until(client.responses) >= 5_000 // ITEMS_PER_TURN


async def test_large_requests_keep_the_order_of_their_connection(listener: Listener) -> None:
    client = Client(listener)
    sent(client, LIST_OFFSETS, 6, 1, offsets_request(2_000))
    sent(client, METADATA, 9, 2, MetadataRequest())
    sent(client, LIST_OFFSETS, 6, 3, offsets_request(2_000))
    found: list[int] = []
    while len(found) < 3:
        await asyncio.sleep(0)
        found += client.correlation_ids()
    assert found == [1, 2, 3]


async def test_a_large_request_that_cannot_be_read_closes_its_connection_with_one_line(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(listener)
    frame = joined(request_frame(LIST_OFFSETS, 6, 1, "test", offsets_request(5_000)))[4:-40]
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        client.send(len(frame).to_bytes(4, "big") + frame)
        await turns_until(lambda: client.transport.ended is not None)
    assert (client.correlation_ids(), client.transport.ended, len(caplog.messages)) == ([], "closed", 1)


async def test_a_client_that_leaves_ends_the_work_on_its_large_request(listener: Listener) -> None:
    first, second = Client(listener), Client(listener)
    sent(first, LIST_OFFSETS, 6, 1, offsets_request(5_000))
    sent(second, LIST_OFFSETS, 6, 1, offsets_request(5_000))
    first.connection.connection_lost(None)
    await turns_until(second.responses)
    assert first.responses() == []


async def test_one_large_message_is_worked_on_at_a_time() -> None:
    """Else the memory of many would add up."""
    turns, order = Turns(), []

    def slices(name: str) -> Any:
        for _ in range(3):
            order.append(name)
            yield
        return name

    works: list[Any] = [turns.run(slices(name)) for name in "ab"]
    assert await asyncio.gather(*(work.run() for work in works)) == ["a", "b"]
    assert order == ["a", "b", "a", "a", "b", "b"]


# Portions


def test_portions_have_the_items_in_order_and_divide_partitions() -> None:
    request = offsets_request(7, topics=3)
    found = list(portions(request.topics, SERVED[LIST_OFFSETS].division, 5))
    assert [
        ([(topic.name, len(topic.partitions)) for topic in portion.items], portion.is_continued) for portion in found
    ] == [
        ([("t0", 5)], False),
        ([("t0", 2), ("t1", 3)], True),
        ([("t1", 4), ("t2", 1)], True),
        ([("t2", 5)], True),
        ([("t2", 1)], True),
    ]


@pytest.mark.parametrize(
    ("topics", "partitions"), [(1, 1_700), (1_700, 1), (3, 1_000), (3, 700), (7, 500), (2, 0), (900, 0)]
)
async def test_a_request_in_portions_has_the_response_to_the_whole_request(topics: int, partitions: int) -> None:
    request = offsets_request(partitions, topics)
    response = in_portions(SERVED[LIST_OFFSETS].division, list_offsets)(request, CONTEXT)
    if asyncio.iscoroutine(response):
        response = await response
    assert response == list_offsets(request, CONTEXT)


async def test_a_repeated_item_is_judged_over_the_whole_request() -> None:
    """ListOffsets: a partition that is named twice has INVALID_REQUEST; a portion would see it once."""
    seen = []
    request = offsets_request(2_000)
    request.topics[0].partitions.append(ListOffsetsPartition(0))
    await in_portions(SERVED[LIST_OFFSETS].division, lambda part, _: seen.append(part))(request, CONTEXT)
    assert seen == [request]
    twice = MetadataRequest([MetadataRequestTopic(name=f"t{one // 2 * 2}") for one in range(1_999, -1, -1)])
    await in_portions(SERVED[METADATA].division, lambda part, _: seen.append(part))(twice, CONTEXT)
    assert seen == [request, twice]


@pytest.mark.parametrize(("topics", "partitions"), [(1, 50_000), (50_000, 1)])
async def test_items_are_counted_and_compared_in_turns(topics: int, partitions: int) -> None:
    """Neither the size of a large request nor whether it names an item twice is found in one step."""
    request, looked_at, handled = offsets_request(partitions, topics), [0], []

    class Counted(list[Any]):
        def __iter__(self) -> Any:
            for one in super().__iter__():
                looked_at[0] += 1
                yield one

    request.topics = Counted(request.topics)
    for topic in request.topics:
        topic.partitions = Counted(topic.partitions)
    looked_at[0] = 0

    async def handle(part: ListOffsetsRequest, context: Any) -> ListOffsetsResponse:
        handled.append(part)
        return list_offsets(part, context)

    work = in_portions(SERVED[LIST_OFFSETS].division, handle)(request, CONTEXT)
    task = asyncio.ensure_future(work)
    while not handled:
        before = looked_at[0]
        await asyncio.sleep(0)
        assert looked_at[0] - before <= 3 * ITEMS_PER_TURN
    task.cancel()


async def test_portions_of_a_produce_are_all_appended_before_acks_are_awaited() -> None:
    """Else the timeouts of the portions would add up; the leaders' addresses of all portions are in the response."""
    acknowledged: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    appended = []

    def produce(request: ProduceRequest, _: Any) -> Pending:
        appended.extend(one.index for topic in request.topic_data for one in topic.partition_data)
        topics = [
            TopicProduceResponse(
                topic.name, partition_responses=[PartitionProduceResponse(one.index) for one in topic.partition_data]
            )
            for topic in request.topic_data
        ]
        node = NodeEndpoint(len(appended) // ITEMS_PER_TURN % 2, "h", 1, None)
        return Pending(acknowledged, lambda _: ProduceResponse(topics, node_endpoints=[node]))

    request = ProduceRequest(
        None,
        -1,
        1_000,
        [TopicProduceData("t", partition_data=[PartitionProduceData(number, b"x") for number in range(1_800)])],
    )
    task = asyncio.ensure_future(in_portions(SERVED[PRODUCE].division, produce)(request, CONTEXT))
    await turns_until(lambda: len(appended) == 1_800)
    assert not task.done()
    acknowledged.set_result(None)
    response = await task
    [topic] = response.responses
    assert [one.index for one in topic.partition_responses] == list(range(1_800))
    assert sorted(node.node_id for node in response.node_endpoints) == [0, 1]


async def test_a_produce_without_acks_has_no_response_in_portions_either() -> None:
    request = ProduceRequest(
        None,
        0,
        1_000,
        [TopicProduceData("t", partition_data=[PartitionProduceData(number, b"x") for number in range(1_800)])],
    )
    assert await in_portions(SERVED[PRODUCE].division, lambda *_: SILENT)(request, CONTEXT) is SILENT


@pytest.mark.parametrize(
    "key", [key for key, api in SERVED.items() if api.division is not None], ids=lambda key: APIS[key].name
)
def test_the_arrays_of_a_division_exist(key: int) -> None:
    division = SERVED[key].division
    fields = [{field.name for field in dataclasses.fields(message_class(key, response=way))} for way in (False, True)]
    assert division.items in fields[0]
    assert division.results in fields[1]
