"""Brokers that replicate over Kafka's protocol in one process and one thread: real connections, cores and logs.

Broker 0 leads all partitions and the others follow; there are no sockets and no controller. Bytes that a client or a
follower writes are read by the other end in the next turn of the event loop, so the CPU time of a produce with acks=all
is the time of the client's request, the followers' rounds and all that the leader does with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    ControlHeader,
    Endpoint,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import API_VERSIONS, BROKER_PROTOCOL, Protocol
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.kafka_connection import KafkaConnection as ClientConnection
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge.settings import parse_broker_settings, topic_values
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.messages import CoreSettings
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.effect_host import Outlets
from tidegauge_broker.server.replication.fetchers import Fetchers
from tidegauge_broker.server.replication.kafka_links import KafkaLinks
from tidegauge_broker.server.replication.leader_link import FetcherIdentity
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.produce_verification import ProduceVerification
from tidegauge_broker.server.wire.kafka.connection import KafkaConnection
from tidegauge_broker.server.wire.kafka.handlers.api_versions import handler_for
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served import HANDLERS, SERVED
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_broker.server.wire.kafka.turns import Turns

NOW_MS = 1_700_000_000_000
TOPIC = "orders"
TOPIC_ID = topic_id_text(b"the topic's id..")
LEADER = 0


class Pipe(asyncio.Transport):
    """One end of a connection in memory: the other end reads its bytes in the next turn of the loop."""

    other: Pipe
    protocol: Any

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5)})
        self._unread: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if not self._unread:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._unread.append(b"".join(list_of_data))

    def _deliver(self) -> None:
        left = memoryview(b"".join(self._unread))
        self._unread.clear()
        protocol = self.other.protocol
        while left:
            room = protocol.get_buffer(-1)
            count = min(len(room), len(left))
            room[:count] = left[:count]
            protocol.buffer_updated(count)
            left = left[count:]

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Deliver written bytes all the same: the connection keeps them."""

    resume_reading = pause_reading

    def abort(self) -> None:
        """Deliver nothing more."""
        self._unread.clear()

    close = abort


def join(client: asyncio.BufferedProtocol, server: asyncio.BufferedProtocol) -> None:
    """Connect two protocols in memory."""
    ends = Pipe(), Pipe()
    for end, other, protocol in zip(ends, ends[::-1], (client, server), strict=True):
        end.other, end.protocol = other, protocol
    server.connection_made(ends[1])
    client.connection_made(ends[0])


class _Listener:
    """The leader's Kafka listener, without an address."""

    name = "PLAINTEXT"
    max_request_bytes = 100 << 20
    gate: Any = None
    responded: Any = None
    serves_brokers = True
    serves_controller = False
    logical_clock: Any = None

    def __init__(self, service: BrokerService, now_ms: Callable[[], int]) -> None:
        self.protocol = BROKER_PROTOCOL
        self.served = SERVED
        self.handlers = dict(HANDLERS)
        self.handlers[API_VERSIONS] = handler_for(list(HANDLERS))
        self.turns = Turns()
        self.responses: Any = None
        self._service = service
        self._now_ms = now_ms
        self._sessions = FetchSessionCache(100, iter(range(1, 1000)).__next__)

    def protocol_of(self, header: Any) -> Protocol:
        del header
        return self.protocol

    def context(self, connection: KafkaConnection, header: Any) -> Context:
        return Context(self._service, connection.caller, self._sessions, self._now_ms, header)

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        return None if certificate else ANONYMOUS

    def opened(self, connection: KafkaConnection) -> bool:
        del connection
        return True

    def closed(self, connection: KafkaConnection) -> None:
        """Nothing is counted."""


class Broker:
    """One broker's replicas; see the module.

    Attributes:
        pool_is_free: while it is not set, what blocks on the disk waits.
    """

    def __init__(self, broker_id: int, directory: Path, open_channel: Callable[[str, str], KafkaChannel]) -> None:
        self.settings, _ = parse_broker_settings({"broker.id": str(broker_id)})
        self.metadata = MetadataCache()
        logs = LogManager.open(
            [directory],
            broker_id=broker_id,
            cluster_id="c",
            broker=self.settings,
            topic_values=lambda _topic: topic_values({}, self.settings),
            now_ms=lambda: NOW_MS,
        )
        core = BrokerCore(broker_id, CoreSettings(), logs, self.metadata)
        loop = asyncio.get_running_loop()
        events = EventLogWriter(None, f"broker-{broker_id}", lambda: NOW_MS, loop.call_later)

        self.pool_is_free = asyncio.Event()
        self.pool_is_free.set()

        async def in_pool(call: Any) -> None:
            await self.pool_is_free.wait()
            call()

        outlets = Outlets(fetchers_changed=lambda leaders: self.fetchers.changed(leaders))  # noqa: PLW0108 - they come last
        self.logs = logs
        self.directory = directory
        self.replicas = ReplicaManager(core, logs, events, lambda: NOW_MS, in_pool, outlets)
        links = KafkaLinks(
            self.metadata.address,
            open_channel,
            FetcherIdentity(broker_id, "c", lambda: 1),
            self.settings,
            self.replicas.topic_id,
        )
        self.fetchers = Fetchers(self.replicas, links, self.settings, lambda: NOW_MS)

    def service(self) -> BrokerService:
        """Return what serves clients and followers; coordinators, admins and the controller are missing."""
        missing: Any = SimpleNamespace()
        return BrokerService(
            cluster_id="c",
            settings=self.settings,
            replicas=self.replicas,
            metadata=self.metadata,
            controller=missing,
            producer_ids=missing,
            configs=missing,
            create_topic=lambda _topic: None,
            groups=missing,
            transactions=missing,
            verification=ProduceVerification(lambda *_: None, missing),
        )

    async def learn(self, partitions: int, broker_ids: tuple[int, ...]) -> None:
        """Take over the one state of the cluster, as from its controller."""
        header = ControlHeader(LEADER, 1, 1)
        endpoints = [Endpoint(one, "127.0.0.1", 9092 + one) for one in broker_ids]
        states = [
            PartitionState(TopicPartition(TOPIC, number), TOPIC_ID, 1, LEADER, 1, broker_ids, 1, broker_ids)
            for number in range(partitions)
        ]
        updates = [ReportedPartition(state) for state in states]
        self.metadata.update(UpdateMetadataRequest(header, updates, endpoints).update)
        become = LeaderAndIsrRequest(header, [LeaderAndIsrPartition(one, True) for one in states], endpoints)

        async def values_of(_topic: str) -> Any:
            return topic_values({}, self.settings)

        response = await self.replicas.control.leader_and_isr(become, values_of)
        assert set(response.partitions.values()) == {ErrorCode.NONE}

    async def close(self) -> None:
        """End as if killed."""
        await self.fetchers.close()
        self.replicas.close()
        self.logs.close({}, clean=False)


class KafkaCluster:
    """Brokers that replicate over Kafka's protocol. Make it inside a running loop, ``start`` it, and ``close`` it.

    Args:
        directory: holds the logs.
        partitions: of the one topic; all brokers host each.
        broker_count: 1: nothing is replicated.
    """

    def __init__(self, directory: Path, partitions: int, broker_count: int) -> None:
        self._partitions = partitions
        self._broker_ids = tuple(range(broker_count))
        self.brokers = [Broker(one, directory / str(one), self._channel) for one in self._broker_ids]
        self._listener = _Listener(self.brokers[LEADER].service(), lambda: NOW_MS)

    async def start(self) -> ClientConnection:
        """Let all brokers lead or follow; return a client's connection to the leader."""
        for broker in self.brokers:
            await broker.learn(self._partitions, self._broker_ids)
        return await self._dial("", lambda: ClientConnection("test"))

    async def until_followers_wait(self) -> None:
        """Let the event loop turn until a fetch of each follower is parked at the leader."""
        waiting = self.brokers[LEADER].replicas.core.waiting_operations
        while waiting()["Fetch"] < len(self.brokers) - 1:  # noqa: ASYNC110 - nothing else would tell
            await asyncio.sleep(0)

    def offsets(self) -> list[tuple[int, int]]:
        """Return high watermark and log end offset of partition 0 at each broker."""
        found = [broker.replicas.core.partition(TopicPartition(TOPIC, 0)) for broker in self.brokers]
        return [(one.high_watermark, one.log_end_offset) for one in found if one is not None]

    async def close(self) -> None:
        """End all brokers."""
        for broker in self.brokers:
            await broker.close()

    def _channel(self, address: str, client_id: str) -> KafkaChannel:
        return KafkaChannel(address, client_id, self._dial)

    def _dial(self, _address: str, protocol: Callable[[], ClientConnection]) -> Awaitable[ClientConnection]:
        async def connect() -> ClientConnection:
            made = protocol()
            join(made, KafkaConnection(self._listener, lambda: NOW_MS))
            return made

        return connect()
