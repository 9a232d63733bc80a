"""Clients that send fetches and never read: their responses share one budget, and everyone else is served.

Rule: docs/configuration.md, ``queued.max.response.bytes``; ``server/service/pending_responses.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
import pytest
from tests.deaf_clients import DeafClients, fetch_and_never_read
from tests.integration.conftest import metadata_at
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge.v1 import broker_service_pb2_grpc, fetch_pb2
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "large"
CLOSED = "its client has not read a response of"
RECORDS = 10
RECORD_BYTES = 900_000
BUDGET_BYTES = 16 << 20
CONNECTIONS = 12
FETCHES = 8
"""Of each connection; all of them together ask for 860 MB."""
KAFKA_CONNECTIONS = 30
MAX_GROWTH_BYTES = 8 * BUDGET_BYTES
"""gRPC copies a response; the rest is what a broker needs to serve twelve connections and one reader."""


@pytest.fixture(scope="module")
def brokers(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    """Two brokers with Kafka's limit of one response, and a topic that is larger than their budget for all."""
    cluster = LocalCluster.create(
        tmp_path_factory.mktemp("slow-readers"),
        2,
        **metadata_at(zookeeper, "slow-readers"),
        base_port=next_base_port(),
        settings={"queued.max.response.bytes": str(BUDGET_BYTES)},
    )
    cluster.up()
    asyncio.run(fill(cluster))
    yield cluster
    cluster.down(grace_seconds=0)


async def fill(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, assignment=[[0, 1]])
    async with Producer(cluster.bootstrap_servers) as producer:
        value = b"v" * RECORD_BYTES
        await asyncio.gather(*[await producer.send(TOPIC, value, partition=0) for _ in range(RECORDS)])


@contextlib.asynccontextmanager
async def deaf_fetches(address: str) -> AsyncIterator[list[Any]]:
    """Fetches of many connections that take none of their responses."""
    wanted = fetch_pb2.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=2**30)
    wanted.partitions.add(topic=TOPIC, partition=0, fetch_offset=0, partition_max_bytes=2**30)
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
    async with DeafClients(address) as deaf, contextlib.AsyncExitStack() as channels:
        calls = []
        for _ in range(CONNECTIONS):
            channel = await channels.enter_async_context(grpc.aio.insecure_channel(deaf, options=options))
            stub: Any = broker_service_pb2_grpc.BrokerServiceStub(channel)  # its types know two classes
            calls += [stub.Fetch(wanted) for _ in range(FETCHES)]
        yield calls


@contextlib.asynccontextmanager
async def deaf_kafka_fetches(address: str) -> AsyncIterator[list[Any]]:
    """The same of Kafka's own protocol, where a connection has one response at a time."""
    at = [TopicPartition(TOPIC, 0)]
    clients = [asyncio.ensure_future(fetch_and_never_read(address, at)) for _ in range(KAFKA_CONNECTIONS)]
    try:
        yield clients
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def read_all(cluster: LocalCluster) -> int:
    """Read the large topic from its beginning; returns how many records it gave."""
    found = 0
    async with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        while found < RECORDS:
            found += len(await consumer.poll(500))
    return found


@pytest.mark.parametrize("wire", ["gRPC", "Kafka"])
async def test_unread_responses_take_no_more_than_their_budget_and_others_are_served(
    brokers: LocalCluster, wire: str
) -> None:
    leader = brokers.leader_of(TOPIC, 0)
    pid = brokers.pid_of(leader)
    assert pid is not None
    log = brokers.logs / f"broker-{leader}.log"
    closed_before = log.read_text().count(CLOSED)
    before_bytes = peak_bytes(pid)
    entry = brokers.file.broker(leader)
    assert entry.kafka_address is not None
    deaf = deaf_fetches(entry.address) if wire == "gRPC" else deaf_kafka_fetches(entry.kafka_address)
    async with deaf as calls:
        assert await read_all(brokers) == RECORDS, "another client reads everything meanwhile"
        async with Producer(brokers.bootstrap_servers, acks="all") as producer:
            await (await producer.send(TOPIC, b"written meanwhile", partition=0))
        await asyncio.to_thread(
            until, lambda: log.read_text().count(CLOSED) > closed_before, 120.0, "who is in the way is disconnected"
        )
        assert any(not call.done() for call in calls), "and no more than those"
    growth_bytes = peak_bytes(pid) - before_bytes
    assert growth_bytes < MAX_GROWTH_BYTES, f"{growth_bytes >> 20} MiB"
    assert "Traceback" not in log.read_text()


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process ever had, or else its present memory."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return int(psutil.Process(pid).memory_info().rss)
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
