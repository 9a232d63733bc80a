"""A consumer group of aiokafka lives through the death of its coordinator."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from steering import Control


async def create_topic(servers: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=3)])
    finally:
        await admin.close()


async def steer(cluster: Control) -> None:
    servers = cluster.bootstrap_servers
    await create_topic(servers, "orders")
    await asyncio.to_thread(cluster.wait, in_sync=["orders"])
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(10):
            await producer.send_and_wait("orders", str(number).encode(), partition=0)
    # A reset to the earliest offset asks for no new metadata where a leader has changed: let them end soon.
    settings = {
        "bootstrap_servers": servers,
        "group_id": "app",
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 5_000,
    }
    async with AIOKafkaConsumer("orders", **settings, enable_auto_commit=False) as consumer:
        first = [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(5)]
        await consumer.commit({next(iter(consumer.assignment())): 5})
        stable = {"id": "app", "state": "Stable", "members": 1}
        coordinator = (await asyncio.to_thread(cluster.wait, group=stable))["actual"]["coordinator"]
        killed = await asyncio.to_thread(cluster.kill, "coordinator-of:group:app")
        assert killed == coordinator
        rest = [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(5)]
        assert [int(value) for value in first + rest] == list(range(10))
        found = (await asyncio.to_thread(cluster.wait, 60_000, group=stable))["actual"]
    assert found["coordinator"] != killed
    assert found["offsets"]["orders-0"]["committed"] == 5, "the commit was replicated before it was acknowledged"


def test_a_commit_outlives_its_coordinator(cluster: Control) -> None:
    asyncio.run(steer(cluster))
