"""An error of one partition leaves the others of the request their effect (rule 4 of tidegauge.faults.rules)."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from kafka_peer import Client, Listener

from tidegauge.errors import ErrorCode
from tidegauge.faults.rules import read_rule
from tidegauge.kafka.apis import ADD_PARTITIONS_TO_TXN, CREATE_TOPICS, DELETE_TOPICS, FETCH, METADATA, PRODUCE
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidegauge.kafka.messages.delete_topics import DeleteTopicsRequest
from tidegauge.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidegauge.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidegauge.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.lab.rules import RuleTable, SetRule
from tidegauge_broker.server.wire.kafka import connection, partial_errors
from tidegauge_broker.server.wire.kafka.pacing import write_slowly
from tidegauge_broker.server.wire.kafka.partial_errors import RequestPart
from tidegauge_broker.server.wire.kafka.served import SERVED

ERROR = int(ErrorCode.NOT_ENOUGH_REPLICAS)
TOPIC_ID = bytes(range(16))


class Broker:
    """A listener whose topics ``a`` and ``b`` take records; behind rules."""

    def __init__(self) -> None:
        self.rules = RuleTable(0)
        self.listener = Listener()
        self.listener.gate = LabGate(FaultTable(0, DiskFaults()), self.rules)
        self.appended: list[tuple[str, int]] = []
        self.listener.handlers = {PRODUCE: self._produce, METADATA: self._metadata}
        self._numbers = itertools.count(1)

    def _produce(self, request: ProduceRequest, _: Any) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            self.appended += [(topic.name, one.index) for one in topic.partition_data]
            found = [PartitionProduceResponse(one.index, 0, 7) for one in topic.partition_data]
            topics.append(TopicProduceResponse(topic.name, partition_responses=found))
        return ProduceResponse(topics)

    def _metadata(self, *_: Any) -> MetadataResponse:
        def partitions() -> list[MetadataResponsePartition]:
            return [MetadataResponsePartition(partition_index=one, leader_id=1) for one in (0, 1)]

        return MetadataResponse(topics=[MetadataResponseTopic(name=name, partitions=partitions()) for name in "ab"])

    def rule(self, **fields: Any) -> None:
        self.rules.set([SetRule("1", read_rule({"count": -1, **fields}))])

    async def ask(self, client: Client, key: int, version: int, message: Any, turns: int = 8) -> Any:
        """The response, or None if none came."""
        client.send(joined(request_frame(key, version, next(self._numbers), "test", message)))
        return await client.response(key, version, turns)


@pytest.fixture
async def broker() -> Broker:
    return Broker()


def produce(acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(name, partition_data=[PartitionProduceData(index, b"") for index in (0, 1)])
            for name in "ab"
        ],
    )


def errors(response: ProduceResponse) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic.name, one.index): (one.error_code, one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    }


async def test_a_produce_before_its_effect_loses_one_partition_and_appends_the_others(broker: Broker) -> None:
    broker.rule(keys=["Produce"], topic="a", partitions=[1], error="NOT_ENOUGH_REPLICAS")
    response = await broker.ask(Client(broker.listener), PRODUCE, 9, produce())
    assert broker.appended == [("a", 0), ("b", 0), ("b", 1)]
    assert errors(response) == {("a", 0): (0, 7), ("a", 1): (ERROR, -1), ("b", 0): (0, 7), ("b", 1): (0, 7)}


async def test_a_produce_after_its_effect_appends_all_and_one_response_is_replaced(broker: Broker) -> None:
    broker.rule(keys=["Produce"], topic="a", partitions=[1], error="NOT_ENOUGH_REPLICAS", after_effect=True)
    response = await broker.ask(Client(broker.listener), PRODUCE, 9, produce())
    assert len(broker.appended) == 4
    assert [code for code, _ in errors(response).values()] == [0, ERROR, 0, 0]


async def test_a_rule_of_a_whole_topic_leaves_the_other_topics(broker: Broker) -> None:
    broker.rule(keys=["Produce"], topic="b", error="NOT_ENOUGH_REPLICAS")
    response = await broker.ask(Client(broker.listener), PRODUCE, 9, produce())
    assert broker.appended == [("a", 0), ("a", 1)]
    assert [code for code, _ in errors(response).values()] == [0, 0, ERROR, ERROR]


async def test_a_request_that_names_nothing_else_is_not_handled(broker: Broker) -> None:
    broker.rule(keys=["Produce"], topic="a", error="NOT_ENOUGH_REPLICAS")
    request = produce()
    request.topic_data = request.topic_data[:1]
    response = await broker.ask(Client(broker.listener), PRODUCE, 9, request)
    assert broker.appended == []
    assert [code for code, _ in errors(response).values()] == [ERROR, ERROR]


async def test_a_produce_without_a_response_closes_its_connection(broker: Broker) -> None:
    broker.rule(keys=["Produce"], topic="a", error="NOT_ENOUGH_REPLICAS")
    client = Client(broker.listener)
    assert await broker.ask(client, PRODUCE, 9, produce(acks=0)) is None
    assert (client.transport.ended, broker.appended) == ("closed", [])


async def test_metadata_of_one_partition_has_the_error(broker: Broker) -> None:
    broker.rule(keys=["Metadata"], topic="a", partitions=[1], error="LEADER_NOT_AVAILABLE")
    response = await broker.ask(Client(broker.listener), METADATA, 9, MetadataRequest(topics=None))
    assert response is not None
    assert all(not topic.error_code for topic in response.topics), "a request for all topics names none"
    named = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in "ab"])
    response = await broker.ask(Client(broker.listener), METADATA, 9, named)
    found = [(topic.name, topic.error_code, [one.error_code for one in topic.partitions]) for topic in response.topics]
    assert found == [("a", 0, [0, 5]), ("b", 0, [0, 0])]


def no_ids(_: bytes) -> None:
    return None


def test_topics_are_created_and_deleted_but_for_the_one_that_is_refused() -> None:
    request = CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")])
    parts = partial_errors.split(SERVED[CREATE_TOPICS].divisible, request, RequestPart("a"), no_ids)
    assert parts is not None
    left, refused = parts
    assert [[one.name for one in part.topics] for part in (left, refused)] == [["b"], ["a"]]
    response = CreateTopicsResponse(topics=[CreatableTopicResult("b")])
    partial_errors.join(response, CreateTopicsResponse(topics=[CreatableTopicResult("a", error_code=ERROR)]))
    assert [(one.name, one.error_code) for one in response.topics] == [("b", 0), ("a", ERROR)]
    parts = partial_errors.split(
        SERVED[DELETE_TOPICS].divisible, DeleteTopicsRequest(topic_names=["a", "b"]), RequestPart("a"), no_ids
    )
    assert parts is not None
    assert [part.topic_names for part in parts] == [["b"], ["a"]]


def test_adding_partitions_to_a_transaction_is_all_or_nothing() -> None:
    """KafkaApis.handleAddPartitionsToTxnRequest: one that fails leaves the others OPERATION_NOT_ATTEMPTED."""
    assert partial_errors.split(SERVED[ADD_PARTITIONS_TO_TXN].divisible, object(), RequestPart("a"), no_ids) is None


@pytest.mark.parametrize("by_id", [False, True])
def test_a_fetch_has_the_error_where_it_says_something_and_where_its_session_leaves_it_out(by_id: bool) -> None:
    """KIP-227: the response of a session names only partitions with news."""

    def name_of(topic_id: bytes) -> str | None:
        return "a" if topic_id == TOPIC_ID else None

    named: dict[str, Any] = {"topic_id": TOPIC_ID} if by_id else {"topic": "a"}
    response = FetchResponse(
        responses=[FetchableTopicResponse(**named, partitions=[PartitionData(0), PartitionData(1)])]
    )
    assert partial_errors.put(response, ERROR, RequestPart("a", {1, 2}), name_of)
    partial_errors.add_to_fetch(response, ERROR, TOPIC_ID if by_id else "a", [1, 2], name_of)
    [topic] = response.responses
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, 0), (1, ERROR), (2, ERROR)]
    empty = FetchResponse()
    assert not partial_errors.put(empty, ERROR, RequestPart("a", {1}), name_of)
    partial_errors.add_to_fetch(empty, ERROR, TOPIC_ID if by_id else "a", [1], name_of)
    version = 13 if by_id else 12
    request = FetchRequest(topics=[FetchTopic("a", TOPIC_ID, [FetchPartition(1)])])
    assert request_frame(FETCH, version, 1, "test", request)
    assert [(one.topic, one.topic_id) for one in empty.responses] == [("", TOPIC_ID) if by_id else ("a", bytes(16))]


async def test_a_frozen_connection_takes_no_effect_before_it_is_released(broker: Broker) -> None:
    broker.rule(keys=["Produce"], freeze=True)
    client = Client(broker.listener)
    assert await broker.ask(client, PRODUCE, 9, produce()) is None
    assert await broker.ask(client, METADATA, 9, MetadataRequest()) is None, "nor does what comes behind it"
    assert (broker.appended, broker.rules.held()) == ([], {"1": 1})
    broker.rules.set([])
    assert errors(await client.response(PRODUCE, 9, turns=8))
    assert len(broker.appended) == 4


async def test_a_connection_that_is_frozen_after_the_effect_sends_no_response(broker: Broker) -> None:
    broker.rule(keys=["Produce"], freeze=True, after_effect=True)
    client = Client(broker.listener)
    assert await broker.ask(client, PRODUCE, 9, produce()) is None
    assert (len(broker.appended), broker.rules.held()) == (4, {"1": 1})
    broker.rules.set([])
    assert errors(await client.response(PRODUCE, 9, turns=8))


@pytest.mark.parametrize("effect", [{}, {"error": "NOT_ENOUGH_REPLICAS"}, {"error": 19, "topic": "a"}])
async def test_a_response_states_a_throttle_time(broker: Broker, effect: dict[str, Any]) -> None:
    """KIP-219: the client, not the broker, waits."""
    broker.rule(keys=["Produce"], throttle_time_ms=250, **effect)
    response = await broker.ask(Client(broker.listener), PRODUCE, 9, produce())
    assert response.throttle_time_ms == 250
    assert any(code for code, _ in errors(response).values()) == bool(effect)


async def test_a_limited_connection_begins_nothing_while_a_response_is_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 2 of connection.py: the next request begins when the response before has been handed to the socket."""
    begun, is_over, rates = asyncio.Event(), asyncio.Event(), []

    async def write(take: Any, data: bytes, bytes_per_second: int) -> None:
        rates.append(bytes_per_second)
        begun.set()
        await is_over.wait()
        take(data)

    monkeypatch.setattr(connection, "write_slowly", write)
    broker.rule(keys=["Metadata"], bytes_per_second=10**9)
    client = Client(broker.listener)
    client.send(joined(request_frame(METADATA, 9, 71, "test", MetadataRequest(topics=None))))
    client.send(joined(request_frame(PRODUCE, 9, 72, "test", produce())))
    await begun.wait()
    assert (client.correlation_ids(), broker.appended) == ([], [])
    is_over.set()
    for _ in range(8):
        await asyncio.sleep(0)
    assert (rates, client.correlation_ids(), len(broker.appended)) == ([10**9], [71, 72], 4)


async def test_a_connection_that_ends_takes_its_slow_response_with_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    async def write(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    monkeypatch.setattr(connection, "write_slowly", write)
    broker.rule(keys=["Metadata"], bytes_per_second=10**9, after_effect=True)
    client = Client(broker.listener)
    assert await broker.ask(client, METADATA, 9, MetadataRequest(topics=None)) is None
    client.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert ended


async def test_a_response_at_a_rate_comes_in_pieces_each_when_its_last_byte_would_arrive() -> None:
    pieces: list[bytes] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await write_slowly(pieces.append, b"x" * 250, 2_000, sleep)
    assert ([len(piece) for piece in pieces], slept) == ([100, 100, 50], [0.05, 0.05, 0.025])
    await write_slowly(pieces.append, b"yz", 1, sleep)
    assert pieces[3:] == [b"y", b"z"]
