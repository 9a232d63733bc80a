"""librdkafka tells the records that a broker refuses from those that it would have taken (KIP-467)."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def _create(cluster: LocalCluster, topic: str) -> None:
    async def create() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topic(topic, partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})

    with ThreadPoolExecutor(1) as pool:  # its own thread, so its own event loop
        pool.submit(asyncio.run, create()).result()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_without_a_key_are_refused_and_the_others_of_their_batch_may_come_again(
    cluster: LocalCluster, codec: str
) -> None:
    """Two of twenty have no key: they have INVALID_RECORD, the others INVALID_DIFFERENT_RECORD."""
    topic = f"compacted-{codec}"
    _create(cluster, topic)
    outcomes: Counter[str] = Counter()

    def delivered(error: Any, message: Any) -> None:
        kind = "with a key" if message.key() else "without"
        outcomes[f"{kind}: {error.name() if error else 'stored'}"] += 1

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
            "linger.ms": 10_000,
            "batch.num.messages": 20,
            "compression.type": codec,
        }
    )
    producer.list_topics(topic, timeout=60)  # else records wait for metadata, and come to their partition one by one
    for number in range(20):
        producer.produce(topic, b"v", key=None if number % 10 == 0 else b"k%d" % number, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert outcomes == {"without: INVALID_RECORD": 2, "with a key: _INVALID_DIFFERENT_RECORD": 18}
