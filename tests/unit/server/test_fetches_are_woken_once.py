"""A broker responds to a waiting fetch when all requests of a turn of its event loop have appended.

Kafka completes waiting fetches after each request (ReplicaManager.tryCompleteActions); one thread serves all of ours.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafka_cluster import LEADER, TOPIC, KafkaCluster

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import CONSUMER, FetchPartition, FetchRequest, ProducePartition, ProduceRequest
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_client.records import NewRecord, encode_batch

BATCH = encode_batch([NewRecord(value=b"x")])
AT = TopicPartition(TOPIC, 0)
PRODUCE = ProduceRequest(1, 1000, [ProducePartition(AT, BATCH)])


async def _waiting_fetch(replicas: ReplicaManager, offset: int = 0) -> asyncio.Task[list[int]]:
    """A consumer's fetch that is parked; returns the sizes of its records."""
    request = FetchRequest(CONSUMER, 60_000, 1, 1 << 20, [FetchPartition(AT, offset, 1 << 20)])

    async def sizes() -> list[int]:
        return [len(records) for _, records in await replicas.fetch(request)]

    task = asyncio.create_task(sizes())
    while replicas.core.waiting_operations()["Fetch"] == 0:  # noqa: ASYNC110 - nothing else would tell
        await asyncio.sleep(0)
    return task


async def test_what_is_appended_in_one_turn_comes_in_one_response(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path, 1, 1)
    await cluster.start()
    replicas = cluster.brokers[LEADER].replicas
    waiting = await _waiting_fetch(replicas)
    for _ in range(3):
        assert replicas.produce(PRODUCE).done()
    assert await asyncio.wait_for(waiting, 30) == [3 * len(BATCH)]
    again = await _waiting_fetch(replicas, 3)
    replicas.produce(PRODUCE)
    assert await asyncio.wait_for(again, 30) == [len(BATCH)]
    await cluster.close()


async def test_a_broker_that_has_closed_wakes_nothing(tmp_path: Path) -> None:
    """Its logs are closed by then: a read would fail."""
    cluster = KafkaCluster(tmp_path, 1, 1)
    await cluster.start()
    broker = cluster.brokers[LEADER]
    waiting = await _waiting_fetch(broker.replicas)
    broker.replicas.produce(PRODUCE)
    broker.replicas.close()
    await asyncio.sleep(0)
    assert not waiting.done()
    assert broker.replicas.core.waiting_operations()["Fetch"] == 1
    waiting.cancel()
    await cluster.close()
