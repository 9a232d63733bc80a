"""A producer of transactions v2 (KIP-890, part 2) for scenarios: librdkafka and Tidegauge's own speak v1.

It does what a client of Kafka 4 does where both sides know v2: no partition is added beforehand, the response to each
EndTxn has the epoch of the next transaction, whose sequences begin at 0, and a request without a response is sent again
over another connection. One record is in flight at a time, and offsets of groups are not among its requests.
Source: TransactionManager and Sender of kafka-clients 4.3.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.messages.end_txn import EndTxnRequest
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge_client.records import NewRecord, encode_batch

_TRANSACTION = 1
"""Kafka's number for coordinators of transactions (``FindCoordinatorRequest.CoordinatorType``)."""
_PRODUCE_WITH_NAMES = 12
"""The version of Produce that has the leader add the partition; later ones name topics by id."""
_END_WITH_EPOCH = 5
"""The first version of EndTxn whose response has the next epoch."""
_BACKOFF_SECONDS = 0.05
_REQUEST_TIMEOUT = "request.timeout.ms"
Asked = Callable[[], Awaitable[Any]]


class TransactionsV2:
    """The producer.

    Args:
        settings: ``bootstrap.servers``, ``transactional.id``, ``transaction.timeout.ms`` and ``request.timeout.ms``.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._runner = asyncio.Runner()
        self._servers = str(settings["bootstrap.servers"]).split(",")
        self._id = str(settings["transactional.id"])
        self._timeout_ms = int(settings["transaction.timeout.ms"])
        self._request_seconds = int(settings.get(_REQUEST_TIMEOUT, 30_000)) / 1000
        self._channels: dict[str, KafkaChannel] = {}
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}

    def init(self, limit_seconds: float) -> None:
        """Take over the transactional id."""

        async def initialize() -> None:
            address = await self._coordinator()
            request = InitProducerIdRequest(self._id, self._timeout_ms)
            self._identify(await self._ask(address, apis.INIT_PRODUCER_ID, request))

        self._repeat(initialize, limit_seconds)

    def begin(self) -> None:
        """Begin a transaction: nothing is sent."""

    def send(
        self, topic: str, partition: int, records: Sequence[tuple[str, int]], limit_seconds: float
    ) -> list[dict[str, Any]]:
        """Send records one after the other, each as a batch; return the outcome of each."""
        at = TopicPartition(topic, partition)
        found: list[dict[str, Any]] = []
        for value, at_ms in records:
            try:
                found.append({"offset": self._send(at, value.encode(), at_ms, limit_seconds)})
            except TidegaugeError as problem:
                found.append({"error": problem.code.name, "message": problem.message})
        return found

    def _send(self, at: TopicPartition, value: bytes, at_ms: int, limit_seconds: float) -> int:
        sequence = self._sequences.get(at, 0)
        data = encode_batch(
            [NewRecord(value, timestamp_ms=at_ms)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        topics = [TopicProduceData(at.topic, partition_data=[PartitionProduceData(at.partition, data)])]
        request = ProduceRequest(self._id, -1, int(self._request_seconds * 1000), topics)

        async def produce() -> int:
            address = await self._leader(at)
            response = await self._request(address, apis.PRODUCE, request, at_most=_PRODUCE_WITH_NAMES)
            [outcome] = response.responses[0].partition_responses
            _raise(outcome.error_code)
            offset: int = outcome.base_offset
            return offset

        found: int = self._repeat(produce, limit_seconds)
        self._sequences[at] = sequence + 1
        return found

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]], limit_seconds: float) -> None:
        """Refuse: this producer adds no offsets of groups."""
        del offsets, limit_seconds
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"this producer adds no offsets of group {group}")

    def commit(self, limit_seconds: float) -> None:
        """Commit."""
        self._end(limit_seconds, commits=True)

    def abort(self, limit_seconds: float) -> None:
        """Abort."""
        self._end(limit_seconds, commits=False)

    def _end(self, limit_seconds: float, *, commits: bool) -> None:
        request = EndTxnRequest(self._id, self._producer_id, self._epoch, commits)

        async def end() -> None:
            address = await self._coordinator()
            self._identify(await self._ask(address, apis.END_TXN, request, at_least=_END_WITH_EPOCH))

        self._repeat(end, limit_seconds)

    def _identify(self, response: Any) -> None:
        """Use the producer id and the epoch of a response from now on."""
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    # Requests

    def _repeat(self, asked: Asked, limit_seconds: float) -> Any:
        """Ask until there is a response without a retriable error."""
        deadline = time.monotonic() + limit_seconds

        async def repeated() -> Any:
            while True:
                try:
                    return await asked()
                except TidegaugeError as problem:
                    if not problem.retriable or time.monotonic() >= deadline:
                        raise
                await asyncio.sleep(_BACKOFF_SECONDS)

        return self._runner.run(repeated())

    async def _coordinator(self) -> str:
        request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[self._id])
        [found] = (await self._of_any(apis.FIND_COORDINATOR, request)).coordinators
        _raise(found.error_code)
        return f"{found.host}:{found.port}"

    async def _leader(self, at: TopicPartition) -> str:
        request = MetadataRequest([MetadataRequestTopic(name=at.topic)], allow_auto_topic_creation=False)
        response = await self._of_any(apis.METADATA, request)
        addresses = {one.node_id: f"{one.host}:{one.port}" for one in response.brokers}
        [topic] = response.topics
        leaders = {one.partition_index: addresses.get(one.leader_id) for one in topic.partitions}
        address = leaders.get(at.partition)
        if address is None:
            raise TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader")
        return address

    async def _of_any(self, key: int, request: Any) -> Any:
        """Ask the first bootstrap server that responds."""
        problem = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no bootstrap server responds")
        for address in self._servers:
            try:
                return await self._request(address, key, request)
            except TidegaugeError as found:
                problem = found
        raise problem

    async def _ask(self, address: str, key: int, request: Any, at_least: int = 0) -> Any:
        """Return a response that has no error."""
        response = await self._request(address, key, request, at_least=at_least)
        _raise(response.error_code)
        return response

    async def _request(
        self, address: str, key: int, request: Any, *, at_least: int = 0, at_most: int | None = None
    ) -> Any:
        if address not in self._channels:
            self._channels[address] = KafkaChannel(address, self._id, protocol=KRAFT_BROKER_PROTOCOL)
        channel = self._channels[address]
        return await channel.request(key, request, self._request_seconds, at_least=at_least, at_most=at_most)


def _raise(error_code: int) -> None:
    if error_code:
        raise TidegaugeError(ErrorCode.of(error_code))
