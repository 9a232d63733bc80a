"""Requests of producers and consumers to leaders, over Kafka's protocol: Produce, Fetch, and offsets of positions.

The sender and the subscription know the messages of gRPC; this module puts them into Kafka's requests, and Kafka's
responses into theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidegauge.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidegauge.kafka.records import Records
from tidegauge.kafka_connection import KafkaConnection
from tidegauge.v1 import common_pb2, fetch_pb2, offsets_pb2, produce_pb2
from tidegauge_client.cluster import Cluster
from tidegauge_client.kafka_wire import KafkaWire
from tidegauge_client.produce_stream import ProduceStream

_PRODUCER, _FETCHES = "produce", "fetch"
"""Purposes of channels: a fetch waits at the broker, and nothing else should wait behind it."""
_LAST_WITH_NAMES = 12
"""Last version of Fetch with names of topics; later ones have their ids."""
_CONSUMER = -1


class KafkaProduceStream:
    """A producer's connection to one broker over Kafka's protocol; it takes the place of ``ProduceStream``.

    Requests are sent in order: once a connection has broken on which some are in flight ``on_broken`` is called, and
    nothing more is sent; one that the broker has closed because it was idle is made again. After ``close`` no callback
    is called; ``on_broken`` is called at most once.
    """

    def __init__(
        self,
        address: str,
        kafka: KafkaWire,
        on_response: Callable[[str, produce_pb2.ProduceResponse], None],
        on_written: Callable[[str, int], None],
        on_broken: Callable[[str, TidegaugeError], None],
    ) -> None:
        """Begin to connect; must run on the event loop.

        Args:
            address: the broker's, for Kafka clients.
            kafka: the producer's.
            on_response: called with each response.
            on_written: called with the correlation id of each request with acks=0 that was sent.
            on_broken: called when the connection has ended, whichever side ended it.
        """
        self._address = address
        self._kafka = kafka
        self._channel = kafka.channel(address, _PRODUCER)
        self._on_response = on_response
        self._on_written = on_written
        self._on_broken = on_broken
        self._requests: asyncio.Queue[produce_pb2.ProduceRequest] = asyncio.Queue()
        self._in_flight = 0
        self._is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, request: produce_pb2.ProduceRequest) -> None:
        """Queue a request; the sender bounds the number of requests in flight."""
        self._requests.put_nowait(request)

    def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        self._task.cancel()
        self._channel.disconnect("the producer closed the connection")

    def on_end(self, listener: Callable[[asyncio.Task[None]], None]) -> asyncio.Task[None]:
        """Call the listener when the task has ended; return the task, which must be awaited before the loop ends."""
        self._task.add_done_callback(listener)
        return self._task

    async def _run(self) -> None:
        try:
            current = await self._channel.connection()
            self._kafka.reached(self._address)
            while True:
                request = await self._requests.get()
                connection = await self._channel.connection()  # the same, authenticated again where its session ends
                if connection is not current and self._in_flight:
                    raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self._address} broke")
                current = connection
                await self._write(connection, request)
        except TidegaugeError as problem:
            self._break(problem)

    async def _write(self, connection: KafkaConnection, request: produce_pb2.ProduceRequest) -> None:
        message = _produce(request)
        version = self._channel.version_of(apis.PRODUCE)
        if request.acks == 0:
            connection.send_without_response(apis.PRODUCE, version, message)
            await connection.drained()
            if not self._is_closed:
                self._on_written(self._address, request.correlation_id)
            return
        response = connection.send(apis.PRODUCE, version, message)
        self._in_flight += 1
        response.add_done_callback(partial(self._responded, request.correlation_id))

    def _responded(self, correlation_id: int, done: asyncio.Future[ProduceResponse]) -> None:
        self._in_flight -= 1
        problem = None if done.cancelled() else done.exception()
        if done.cancelled() or self._is_closed:
            return
        if isinstance(problem, TidegaugeError):
            self._break(problem)
        else:
            self._on_response(self._address, _produced(correlation_id, done.result()))

    def _break(self, problem: TidegaugeError) -> None:
        if not self._is_closed:
            self.close()
            self._on_broken(self._address, problem)


def open_stream(
    cluster: Cluster,
    address: str,
    on_response: Callable[[str, produce_pb2.ProduceResponse], None],
    on_written: Callable[[str, int], None],
    on_broken: Callable[[str, TidegaugeError], None],
) -> KafkaProduceStream | ProduceStream:
    """Begin to connect a producer to a leader, over the wire whose address it is; see ``KafkaProduceStream``."""
    if cluster.is_of_kafka(address):
        return KafkaProduceStream(address, cluster.kafka, on_response, on_written, on_broken)
    return ProduceStream(address, cluster.channels, on_response, on_written, on_broken)


def _produce(request: produce_pb2.ProduceRequest) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for one in request.partitions:
        topics.setdefault(one.topic, []).append(PartitionProduceData(one.partition, one.records))
    data = [TopicProduceData(name, partition_data=partitions) for name, partitions in topics.items()]
    return ProduceRequest(request.transactional_id or None, request.acks, request.timeout_ms, data)


def _produced(correlation_id: int, response: ProduceResponse) -> produce_pb2.ProduceResponse:
    found = produce_pb2.ProduceResponse(correlation_id=correlation_id)
    for topic in response.responses:
        for one in topic.partition_responses:
            result = found.partitions.add(
                topic=topic.name,
                partition=one.index,
                error=one.error_code,
                error_message=one.error_message or "",
            )
            if not one.error_code:
                result.base_offset = one.base_offset
            if one.log_append_time_ms >= 0:
                result.log_append_time_ms = one.log_append_time_ms
            hint = one.current_leader
            if hint is not None and hint.leader_id >= 0:
                result.current_leader.CopyFrom(_hint(hint))
    return found


def _hint(hint: Any) -> common_pb2.LeaderHint:
    return common_pb2.LeaderHint(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)


class KafkaReads:
    """A consumer's requests to a leader, over Kafka's protocol.

    Args:
        kafka: the consumer's.
        address: the leader's, for Kafka clients.
    """

    def __init__(self, kafka: KafkaWire, address: str) -> None:
        self._kafka = kafka
        self._address = address

    async def fetch(self, request: fetch_pb2.FetchRequest, timeout_ms: float) -> fetch_pb2.FetchResponse:
        """Send Fetch, without a session.

        Raises:
            TidegaugeError: there is no response.
        """
        topics: dict[str, list[FetchPartition]] = {}
        for one in request.partitions:
            wanted = FetchPartition(
                one.partition,
                one.current_leader_epoch if one.HasField("current_leader_epoch") else -1,
                one.fetch_offset,
                one.last_fetched_epoch if one.HasField("last_fetched_epoch") else -1,
                partition_max_bytes=one.partition_max_bytes,
            )
            topics.setdefault(one.topic, []).append(wanted)
        message = FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=int(request.reads_committed),
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )
        response: FetchResponse = await self._kafka.ask(
            self._address, apis.FETCH, message, timeout_ms, purpose=_FETCHES, at_most=_LAST_WITH_NAMES
        )
        if response.error_code:
            raise TidegaugeError(ErrorCode.of(response.error_code))
        found = fetch_pb2.FetchResponse()
        for topic in response.responses:
            for data in topic.partitions:
                _add_fetched(found, topic.topic, data)
        return found

    async def list_offsets(
        self, request: offsets_pb2.ListOffsetsRequest, timeout_ms: float
    ) -> offsets_pb2.ListOffsetsResponse:
        """Send ListOffsets.

        Raises:
            TidegaugeError: there is no response.
        """
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for one in request.partitions:
            wanted = ListOffsetsPartition(one.partition, timestamp=one.timestamp_ms)
            topics.setdefault(one.topic, []).append(wanted)
        message = ListOffsetsRequest(
            _CONSUMER, int(request.reads_committed), [ListOffsetsTopic(*topic) for topic in topics.items()]
        )
        response: ListOffsetsResponse = await self._kafka.ask(self._address, apis.LIST_OFFSETS, message, timeout_ms)
        found = offsets_pb2.ListOffsetsResponse()
        for topic in response.topics:
            for result in topic.partitions:
                added = found.partitions.add(
                    topic=topic.name,
                    partition=result.partition_index,
                    error=result.error_code,
                )
                if result.offset >= 0:
                    added.offset = result.offset
        return found

    async def epoch_ends(
        self, request: offsets_pb2.OffsetsForLeaderEpochRequest, timeout_ms: float
    ) -> offsets_pb2.OffsetsForLeaderEpochResponse:
        """Send OffsetForLeaderEpoch.

        Raises:
            TidegaugeError: there is no response.
        """
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for one in request.partitions:
            epoch = one.current_leader_epoch if one.HasField("current_leader_epoch") else -1
            wanted = OffsetForLeaderPartition(one.partition, epoch, one.leader_epoch)
            topics.setdefault(one.topic, []).append(wanted)
        message = OffsetForLeaderEpochRequest(_CONSUMER, [OffsetForLeaderTopic(*topic) for topic in topics.items()])
        response: OffsetForLeaderEpochResponse = await self._kafka.ask(
            self._address, apis.OFFSET_FOR_LEADER_EPOCH, message, timeout_ms
        )
        found = offsets_pb2.OffsetsForLeaderEpochResponse()
        for topic in response.topics:
            for result in topic.partitions:
                added = found.partitions.add(
                    topic=topic.topic,
                    partition=result.partition,
                    error=result.error_code,
                )
                added.end.CopyFrom(_end(result.leader_epoch, result.end_offset))
        return found


def _add_fetched(response: fetch_pb2.FetchResponse, topic: str, data: PartitionData) -> None:
    found = response.partitions.add(
        topic=topic,
        partition=data.partition_index,
        error=data.error_code,
        records=joined(data.records),
        aborted_transactions=[
            fetch_pb2.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in data.aborted_transactions or ()
        ],
    )
    if data.high_watermark >= 0:
        found.high_watermark = data.high_watermark
    if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
        found.diverging_epoch.CopyFrom(_end(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
    if data.current_leader is not None and data.current_leader.leader_id >= 0:
        found.current_leader.CopyFrom(_hint(data.current_leader))


def joined(records: Records | None) -> bytes:
    """Return a response's record batches in one buffer."""
    return b"".join(records) if isinstance(records, list) else bytes(records or b"")


def _end(leader_epoch: int, end_offset: int) -> common_pb2.EpochEndOffset:
    end = common_pb2.EpochEndOffset()
    if leader_epoch >= 0:
        end.leader_epoch = leader_epoch
    if end_offset >= 0:
        end.end_offset = end_offset
    return end
