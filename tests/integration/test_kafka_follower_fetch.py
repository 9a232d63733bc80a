"""A consumer with a rack reads from the follower in it (KIP-392), and goes on through the death of that follower.

The brokers' request logs say where it read: Fetch requests on the listener of Kafka clients are its own, followers
fetch over gRPC.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.waiting import until

from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
LIMIT_SECONDS = 60.0
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "request.log.enable": "true",
    "auto.leader.rebalance.enable": "false",
    **{f"{broker}:broker.rack": f"rack-{broker}" for broker in range(3)},
}
LEADER, FOLLOWER = 0, 2


def fetches(cluster: LocalCluster, broker: int) -> int:
    """Return how many Fetch requests of Kafka clients a broker has completed."""
    lines = (cluster.logs / f"broker-{broker}.log").read_text().splitlines()
    of_clients = [line for line in lines if ",listener:PLAINTEXT," in line and ",broker:" not in line]
    return sum("Completed request:Fetch," in line for line in of_clients)


def produce(cluster: LocalCluster, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)})
    for value in values:
        producer.produce("near", value, partition=0)
    assert producer.flush(LIMIT_SECONDS) == 0


def test_a_consumer_reads_from_the_follower_in_its_rack_and_survives_its_death(make_cluster) -> None:
    cluster: LocalCluster = make_cluster(settings=SETTINGS)

    async def create() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topic("near", assignment=[[LEADER, 1, FOLLOWER]])

    with ThreadPoolExecutor(1) as pool:  # its own thread, so its own event loop
        pool.submit(asyncio.run, create()).result()
    produce(cluster, [b"first"])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
            "group.id": "unused",
            "enable.auto.commit": False,
            "client.rack": f"rack-{FOLLOWER}",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("near", 0, 0)])
    found: list[bytes] = []

    def has_read(count: int) -> bool:
        message: Any = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) >= count

    until(lambda: has_read(1), timeout=LIMIT_SECONDS, what="the first record is read")

    def reads_at(broker: int) -> bool:
        consumer.poll(0.1)
        return fetches(cluster, broker) > 0

    until(lambda: reads_at(FOLLOWER), timeout=LIMIT_SECONDS, what="the consumer asks the follower in its rack")
    produce(cluster, [b"second"])
    until(lambda: has_read(2), timeout=LIMIT_SECONDS, what="the second record is read")
    cluster.kill(FOLLOWER)
    produce(cluster, [b"third"])
    until(lambda: has_read(3), timeout=LIMIT_SECONDS, what="the consumer goes on without its follower")
    consumer.close()
    assert found == [b"first", b"second", b"third"]
    assert fetches(cluster, 1) == 0, "the follower in another rack was never asked"
