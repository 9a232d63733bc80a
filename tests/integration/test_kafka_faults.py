"""The lab's faults meet a real Kafka client: librdkafka lives through errors, lost and late responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
LIMIT_SECONDS = 60.0
RECORDS = 20
SETTINGS: dict[str, str] = {}


def produce_and_read(servers: str, topic: str) -> list[bytes]:
    """Write records one by one with an idempotent producer, and return what the partition holds."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 50}
    )
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
        producer.poll(0.01)
    assert producer.flush(LIMIT_SECONDS) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < RECORDS:
        message: Any = consumer.poll(LIMIT_SECONDS)
        assert message is not None, f"only {len(found)} records within {LIMIT_SECONDS} s"
        assert message.error() is None, message.error()
        found.append(message.value())
    _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=LIMIT_SECONDS)
    consumer.close()
    assert high == RECORDS, "a record was written twice"
    return found


@pytest.mark.parametrize("fault", ["error", "error after the effect", "late", "lost"])
async def test_a_kafka_client_lives_through_faults_of_its_leader(
    brokers: LocalCluster, lab: Switches, fault: str
) -> None:
    topic = f"faults-{fault.replace(' ', '-')}"
    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(topic, assignment=[[0, 1, 2]])
    match fault:
        case "error":
            await lab.inject_error(0, "Produce", "NOT_ENOUGH_REPLICAS", times=3, topic=topic)
        case "error after the effect":
            await lab.inject_error(0, "Produce", "REQUEST_TIMED_OUT", after_effect=True, times=2)
        case "late":
            await lab.isolate(0, "clients", delay_ms=50)
        case "lost":
            await lab.isolate(0, "clients", drop=0.2, seed=3)
    servers = ",".join(brokers.kafka_bootstrap_servers)
    found = await asyncio.to_thread(produce_and_read, servers, topic)
    assert found == [b"%d" % number for number in range(RECORDS)]
