"""A log with transactions that Apache Kafka wrote, served to a client by isolation level (KIP-98)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.kafka_log_dir import log_of
from tests.waiting import until, until_async

from tidegauge.errors import TidegaugeError
from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.layout import broker_data

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
LIMIT_SECONDS = 60.0


def leader_of(cluster: LocalCluster) -> list[int]:
    """The leader of orders-0; empty while no broker says."""
    with contextlib.suppress(TidegaugeError):
        return [cluster.leader_of("orders", 0)]
    return []


async def is_in_sync(cluster: LocalCluster, replicas: set[int]) -> bool:
    """Whether the ISR of orders-0 is this; False while no broker says."""
    with contextlib.suppress(TidegaugeError):
        async with Admin(cluster.bootstrap_servers) as admin:
            [topic] = await admin.describe_topics(["orders"])
            return set(topic.partitions[0].isr) == replicas
    return False


@pytest.fixture
async def served(make_cluster: Any) -> LocalCluster:
    """Three replicas of orders-0; the leader found Kafka's log, without its .txnindex, when it started again."""
    cluster: LocalCluster = make_cluster()
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("orders", partitions=1, replication_factor=3)
    leader = until(lambda: leader_of(cluster), what="a leader is known", timeout=LIMIT_SECONDS)[0]
    for broker in cluster.file.brokers:
        if broker.id != leader:
            cluster.kill(broker.id, expire=True)
    await until_async(lambda: is_in_sync(cluster, {leader}), what="it leads alone, so that no other is elected")
    cluster.kill(leader, expire=True)
    log = broker_data(cluster.directory, leader) / "orders-0" / "00000000000000000000.log"
    assert log.read_bytes() == b""
    log.write_bytes(log_of("t-0").read_bytes())
    (log.parent / "leader-epoch-checkpoint").unlink()  # its epochs are later than Kafka's batches'
    cluster.up(LIMIT_SECONDS)
    return cluster


def read(cluster: LocalCluster, isolation_level: str, count: int) -> list[tuple[int, bytes]]:
    """Offsets and values of all records that a client of this isolation level is given."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[tuple[int, bytes]] = []

    def at_the_end() -> bool:
        for message in consumer.consume(100, timeout=0.5):
            if message.error() is None:
                found.append((message.offset(), message.value()))
            elif len(found) >= count:
                return True
        return False

    until(at_the_end, what="the client has read to the end", timeout=LIMIT_SECONDS)
    consumer.close()
    return found


async def test_a_client_gets_what_was_committed_or_all_as_it_asks(served: LocalCluster) -> None:
    """Offsets 0, 1 and 8 were committed; 3, 5 and 6 aborted. Markers are never records. A new leader agrees."""
    committed = [(0, b"v0"), (1, b"v1"), (8, b"v")]
    everything = [(0, b"v0"), (1, b"v1"), (3, b"v2"), (5, b"v"), (6, b"v"), (8, b"v")]
    assert await asyncio.to_thread(read, served, "read_committed", 3) == committed
    assert await asyncio.to_thread(read, served, "read_uncommitted", 6) == everything
    await until_async(lambda: is_in_sync(served, {0, 1, 2}), what="all replicas are in sync")
    await asyncio.to_thread(served.kill, leader_of(served)[0], expire=True)
    assert await asyncio.to_thread(read, served, "read_committed", 3) == committed
