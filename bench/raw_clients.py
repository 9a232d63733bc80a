"""Clients that speak Kafka's protocol by themselves, one request at a time on a connection: members, producers.

They know no more than what a benchmark needs, so that the measured cost is the brokers'.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Collection
from typing import Any

from tests.wire_responses.batches import TRANSACTIONAL, batch

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.end_txn import EndTxnRequest
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest
from tidegauge.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

READY_SECONDS = 90.0
SESSION_MS, REBALANCE_MS = 45_000, 300_000
SUBSCRIPTION = bytes(6)
"""A subscription to nothing: the assignment is the leader's business, and not measured."""
VERSIONS = {
    apis.API_VERSIONS: 3,
    apis.METADATA: 9,
    apis.FIND_COORDINATOR: 4,
    apis.JOIN_GROUP: 7,
    apis.SYNC_GROUP: 5,
    apis.HEARTBEAT: 4,
    apis.INIT_PRODUCER_ID: 4,
    apis.ADD_PARTITIONS_TO_TXN: 3,
    apis.PRODUCE: 9,
    apis.END_TXN: 3,
}
_LATER = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""Errors after which a client asks once more."""


REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
BEAT_SECONDS = 0.002


class Connection:
    """One connection, one request at a time; whoever asks while a request is in flight waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._alone = asyncio.Lock()

    @staticmethod
    async def open(server: str) -> Connection:
        """Connect to ``host:port``."""
        host, _, port = server.rpartition(":")
        return Connection(*await asyncio.open_connection(host, int(port)))

    async def ask(self, key: int, message: Any) -> Any:
        """Return the response to a request."""
        async with self._alone:
            self._writer.write(joined(request_frame(key, VERSIONS[key], next(self._numbers), "bench", message)))
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = memoryview(await self._reader.readexactly(size))
        _, body_at = read_response_header(key, VERSIONS[key], frame)
        return decode(key, VERSIONS[key], frame, body_at, response=True)[0]

    async def versions(self) -> None:
        """Ask which versions there are, as every client does first."""
        await self.ask(apis.API_VERSIONS, ApiVersionsRequest("bench", "1"))

    async def metadata(self, topic: str) -> Any:
        """Return the metadata of one topic."""
        return await self.ask(apis.METADATA, MetadataRequest([MetadataRequestTopic(name=topic)], False))

    def close(self) -> None:
        """End it."""
        self._writer.close()


async def coordinators_of(bootstrap: str, keys: Collection[str], *, are_transactional: bool = False) -> dict[str, str]:
    """Return the coordinators' addresses by key; the first request makes the topic.

    Raises:
        RuntimeError: there is none within 90 s.
    """
    connection = await Connection.open(bootstrap.split(",", 1)[0])
    found: dict[str, str] = {}
    deadline = time.monotonic() + READY_SECONDS
    while missing := [key for key in keys if key not in found]:
        request = FindCoordinatorRequest(key_type=int(are_transactional), coordinator_keys=missing)
        for one in (await connection.ask(apis.FIND_COORDINATOR, request)).coordinators:
            if one.error_code == ErrorCode.NONE:
                found[one.key] = f"{one.host}:{one.port}"
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(missing)} have no coordinator")
        await asyncio.sleep(0.1)
    connection.close()
    return found


class Member:
    """A member of a group that rejoins when its heartbeat says so."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._id = ""
        self.generation = -1

    async def join(self) -> None:
        """Join the next generation, and get its assignment."""
        while True:
            response = await self._connection.ask(
                apis.JOIN_GROUP,
                JoinGroupRequest(
                    self._group,
                    SESSION_MS,
                    REBALANCE_MS,
                    self._id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol("range", SUBSCRIPTION)],
                ),
            )
            self._id = response.member_id or self._id
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            if response.error_code in _LATER:
                await asyncio.sleep(0.1)
                continue
            if response.error_code != ErrorCode.NONE:
                raise RuntimeError(f"JoinGroup: {response.error_code}")
            done = await self._connection.ask(
                apis.SYNC_GROUP,
                SyncGroupRequest(
                    self._group,
                    response.generation_id,
                    self._id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=[SyncGroupRequestAssignment(one.member_id, SUBSCRIPTION) for one in response.members],
                ),
            )
            if done.error_code == ErrorCode.NONE:
                self.generation = response.generation_id
                return
            if done.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"SyncGroup: {done.error_code}")

    async def beat(self) -> int:
        """Send a heartbeat; return its error code."""
        response = await self._connection.ask(apis.HEARTBEAT, HeartbeatRequest(self._group, self.generation, self._id))
        return int(response.error_code)

    async def rejoin(self) -> None:
        """Send heartbeats until the group rebalances, then join."""
        while await self.beat() not in REJOIN:  # noqa: ASYNC110 - each look is a heartbeat
            await asyncio.sleep(BEAT_SECONDS)
        await self.join()

    def close(self) -> None:
        """Close the connection, without leaving."""
        self._connection.close()


class Client:
    """Connections to the brokers, shared by producers, and where a topic's leaders are."""

    def __init__(self, topic: str, leaders: dict[int, str]) -> None:
        self.topic = topic
        self._leaders = leaders
        self._connections: dict[str, Connection] = {}

    @staticmethod
    async def of(bootstrap: str, topic: str) -> Client:
        """Ask for the leaders."""
        connection = await Connection.open(bootstrap.split(",", 1)[0])
        metadata = await connection.metadata(topic)
        connection.close()
        servers = {one.node_id: f"{one.host}:{one.port}" for one in metadata.brokers}
        [found] = metadata.topics
        return Client(topic, {one.partition_index: servers[one.leader_id] for one in found.partitions})

    async def connection(self, server: str) -> Connection:
        """Return the connection to a broker."""
        if server not in self._connections:
            self._connections[server] = await Connection.open(server)
        return self._connections[server]

    async def leader(self, partition: int) -> Connection:
        """Return the connection to a partition's leader."""
        return await self.connection(self._leaders[partition])

    def close(self) -> None:
        """Close all connections."""
        for one in self._connections.values():
            one.close()


class TransactionalId:
    """A transactional producer that writes to one partition."""

    def __init__(self, name: str, coordinator: Connection, client: Client, partition: int) -> None:
        self._name = name
        self._coordinator = coordinator
        self._client = client
        self._partition = partition
        self._producer_id = self._epoch = -1
        self._sequence = 0

    async def begin(self) -> None:
        """Get a producer id."""
        response = await self._again(apis.INIT_PRODUCER_ID, InitProducerIdRequest(self._name, 60_000))
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch

    async def transaction(self) -> None:
        """Write one record, and commit it.

        Raises:
            RuntimeError: the record was refused.
        """
        mine = self._name, self._producer_id, self._epoch
        topics = [AddPartitionsToTxnTopic(self._client.topic, [self._partition])]
        await self._again(
            apis.ADD_PARTITIONS_TO_TXN,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=mine[0],
                v3_and_below_producer_id=mine[1],
                v3_and_below_producer_epoch=mine[2],
                v3_and_below_topics=topics,
            ),
        )
        records = batch(
            producer_id=self._producer_id, epoch=self._epoch, sequence=self._sequence, attributes=TRANSACTIONAL
        )
        self._sequence += 1
        data = [TopicProduceData(self._client.topic, partition_data=[PartitionProduceData(self._partition, records)])]
        leader = await self._client.leader(self._partition)
        written = await leader.ask(apis.PRODUCE, ProduceRequest(self._name, -1, 30_000, data))
        error = written.responses[0].partition_responses[0].error_code
        if error:
            raise RuntimeError(f"Produce: {error}")
        await self._again(apis.END_TXN, EndTxnRequest(*mine, True))

    async def _again(self, key: int, message: Any) -> Any:
        """Ask until the coordinator has no reason to be asked later.

        Raises:
            RuntimeError: it refuses.
        """
        while True:
            response = await self._coordinator.ask(key, message)
            errors = {getattr(response, "error_code", 0)} | {
                one.partition_error_code
                for topic in getattr(response, "results_by_topic_v3_and_below", ())
                for one in topic.results_by_partition
            } - {0}
            errors.discard(0)
            if not errors:
                return response
            if not errors <= _LATER:
                raise RuntimeError(f"{type(message).__name__}: {errors}")
            await asyncio.sleep(0.02)
