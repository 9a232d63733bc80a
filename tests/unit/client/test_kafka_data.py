"""Requests of producers and consumers to leaders over Kafka's protocol (``kafka_data``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidegauge.kafka.messages.offset_for_leader_epoch import EpochEndOffset as EpochEnd
from tidegauge.kafka.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from tidegauge.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tidegauge.security import PLAIN
from tidegauge.v1 import fetch_pb2, offsets_pb2, produce_pb2
from tidegauge_client.kafka_data import KafkaProduceStream, KafkaReads
from tidegauge_client.kafka_wire import KafkaWire

BROKE = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "the connection broke")


class Connection:
    """One connection, whose responses the test gives."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.responses: list[asyncio.Future[Any]] = []

    def send(self, key: int, version: int, message: Any) -> asyncio.Future[Any]:
        assert (key, version) == (apis.PRODUCE, 11)
        self.sent.append(message)
        self.responses.append(asyncio.get_running_loop().create_future())
        return self.responses[-1]

    def send_without_response(self, key: int, version: int, message: Any) -> None:
        assert (key, version) == (apis.PRODUCE, 11)
        self.sent.append(message)

    async def drained(self) -> None:
        await asyncio.sleep(0)


class Channel:
    """A channel with connections that the test makes."""

    def __init__(self) -> None:
        self.current: Connection | TidegaugeError = Connection()
        self.disconnected: list[str] = []

    async def connection(self) -> Connection:
        await asyncio.sleep(0)
        if isinstance(self.current, TidegaugeError):
            raise self.current
        return self.current

    def version_of(self, key: int) -> int:
        assert key == apis.PRODUCE
        return 11

    def disconnect(self, why: str) -> None:
        self.disconnected.append(why)


class World:
    """A stream, and what it has reported."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.responses: list[produce_pb2.ProduceResponse] = []
        self.written: list[int] = []
        self.broken: list[TidegaugeError] = []
        wire = KafkaWire(PLAIN, {})
        wire.channel = lambda *_: self.channel  # type: ignore[assignment,method-assign,return-value]  # the fake
        self.stream = KafkaProduceStream(
            "b:9",
            wire,
            lambda _, response: self.responses.append(response),
            lambda _, number: self.written.append(number),
            lambda _, problem: self.broken.append(problem),
        )

    @property
    def connection(self) -> Connection:
        assert isinstance(self.channel.current, Connection)
        return self.channel.current


def request(number: int, acks: int = -1) -> produce_pb2.ProduceRequest:
    made = produce_pb2.ProduceRequest(correlation_id=number, acks=acks, timeout_ms=5, transactional_id="x")
    made.partitions.add(topic="t", partition=0, records=b"a")
    made.partitions.add(topic="t", partition=1, records=b"b")
    return made


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_requests_are_sent_in_order_and_responses_have_their_numbers() -> None:
    world = World()
    for number in (1, 2):
        world.stream.send(request(number))
    await turns()
    [first, _] = world.connection.sent
    assert (first.acks, first.timeout_ms, first.transactional_id) == (-1, 5, "x")
    assert [(one.index, one.records) for one in first.topic_data[0].partition_data] == [(0, b"a"), (1, b"b")]
    good = PartitionProduceResponse(0, 0, 7, log_append_time_ms=99)
    hint = {"error_message": "moved", "current_leader": LeaderIdAndEpoch(2, 5)}
    bad = PartitionProduceResponse(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, **hint)
    world.connection.responses[0].set_result(
        ProduceResponse([TopicProduceResponse("t", partition_responses=[good, bad])])
    )
    await turns()
    [response] = world.responses
    assert response.correlation_id == 1
    acked, refused = response.partitions
    assert (acked.base_offset, acked.log_append_time_ms, acked.HasField("current_leader")) == (7, 99, False)
    assert (refused.error, refused.error_message, refused.HasField("base_offset")) == (6, "moved", False)
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 5)
    world.stream.close()


async def test_with_acks_0_a_request_is_done_when_it_was_written() -> None:
    world = World()
    world.stream.send(request(1, acks=0))
    await turns()
    assert (world.written, world.connection.responses) == ([1], [])
    world.stream.close()


async def test_a_connection_that_broke_is_reported_once_and_nothing_more_is_sent() -> None:
    """Requests on a second connection could overtake those whose outcome is unknown."""
    world = World()
    for number in (1, 2):
        world.stream.send(request(number))
    await turns()
    for response in world.connection.responses:
        response.set_exception(BROKE)
    world.stream.send(request(3))
    await turns()
    assert (world.broken, len(world.connection.sent)) == ([BROKE], 2)
    assert world.channel.disconnected


async def test_a_second_connection_is_used_only_when_nothing_is_in_flight_on_the_first() -> None:
    """A broker closes idle connections (connections.max.idle.ms); that costs no batch a retry."""
    world = World()
    world.stream.send(request(1))
    await turns()
    first = world.connection
    first.responses[0].set_result(ProduceResponse())
    await turns()
    world.channel.current = second = Connection()
    world.stream.send(request(2))
    await turns()
    assert (len(first.sent), len(second.sent), world.broken) == (1, 1, [])
    world.channel.current = third = Connection()
    world.stream.send(request(3))
    await turns()
    assert [one.code for one in world.broken] == [ErrorCode.NETWORK_EXCEPTION]
    assert third.sent == [], "request 2 is in flight on a connection that broke"


async def test_a_broker_that_cannot_be_reached_is_reported() -> None:
    world = World()
    world.channel.current = BROKE
    world.stream.send(request(1))
    await turns()
    assert world.broken == [BROKE]


@pytest.mark.parametrize("after", range(6))
async def test_after_close_nothing_is_called_whenever_it_comes(after: int) -> None:
    world = World()
    world.stream.send(request(1))
    for _ in range(after):
        await asyncio.sleep(0)
    world.stream.close()
    for response in world.connection.responses:
        response.set_exception(BROKE)
    await turns()
    assert (world.responses, world.written, world.broken) == ([], [], [])


class Wire(KafkaWire):
    """Responds to one request, and keeps it."""

    def __init__(self, response: Any) -> None:
        super().__init__(PLAIN, {})
        self.response = response
        self.asked: tuple[Any, ...] = ()

    async def ask(self, address: str, key: int, message: Any, timeout_ms: float, **limits: Any) -> Any:
        assert (address, timeout_ms) == ("b:9", 70)
        self.asked = (key, message, limits)
        return self.response


async def test_a_fetch_and_its_response() -> None:
    wanted = fetch_pb2.FetchRequest(max_wait_ms=5, min_bytes=1, max_bytes=100, reads_committed=True)
    wanted.partitions.add(topic="t", partition=0, fetch_offset=7, partition_max_bytes=50, current_leader_epoch=3)
    data = PartitionData(
        0,
        0,
        20,
        diverging_epoch=EpochEndOffset(2, 5),
        aborted_transactions=[AbortedTransaction(9, 8)],
        records=[b"ab", memoryview(b"c")],
    )
    moved = PartitionData(1, ErrorCode.FENCED_LEADER_EPOCH, -1, current_leader=LeaderIdAndEpoch(2, 6))
    wire = Wire(FetchResponse(responses=[FetchableTopicResponse("t", partitions=[data, moved])]))
    found, other = (await KafkaReads(wire, "b:9").fetch(wanted, 70)).partitions
    key, message, limits = wire.asked
    assert (key, limits["at_most"], message.isolation_level, message.session_epoch) == (apis.FETCH, 12, 1, -1)
    [one] = message.topics[0].partitions
    assert (one.fetch_offset, one.current_leader_epoch, one.last_fetched_epoch) == (7, 3, -1)
    assert (found.records, found.high_watermark) == (b"abc", 20)
    assert (found.diverging_epoch.leader_epoch, found.diverging_epoch.end_offset) == (2, 5)
    assert [(item.producer_id, item.first_offset) for item in found.aborted_transactions] == [(9, 8)]
    assert (other.error, other.HasField("high_watermark"), other.HasField("diverging_epoch")) == (74, False, False)
    assert other.current_leader.leader_id == 2


async def test_offsets_and_ends_of_epochs() -> None:
    wanted = offsets_pb2.ListOffsetsRequest()
    wanted.partitions.add(topic="t", partition=0, timestamp_ms=-2)
    results = [ListOffsetsPartitionResponse(0, 0, (), -1, 4), ListOffsetsPartitionResponse(1, 3)]
    wire = Wire(ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", results)]))
    found, unknown = (await KafkaReads(wire, "b:9").list_offsets(wanted, 70)).partitions
    assert (found.offset, unknown.error, unknown.HasField("offset")) == (4, 3, False)
    assert wire.asked[1].topics[0].partitions[0].timestamp == -2
    epochs = offsets_pb2.OffsetsForLeaderEpochRequest()
    epochs.partitions.add(topic="t", partition=0, current_leader_epoch=3, leader_epoch=2)
    ends = [EpochEnd(0, 0, 2, 9), EpochEnd(0, 1)]
    wire = Wire(OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", ends)]))
    known, undefined = (await KafkaReads(wire, "b:9").epoch_ends(epochs, 70)).partitions
    assert (known.end.leader_epoch, known.end.end_offset) == (2, 9)
    assert not undefined.end.HasField("end_offset")
    assert wire.asked[1].replica_id == -1
