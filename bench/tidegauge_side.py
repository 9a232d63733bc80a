"""Tidegauge's side: a cluster of three brokers of its own, our asyncio client."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from measure import Figures, Side, Workload, percentile, resident_bytes

from tidegauge.partition import TopicPartition
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_lab.cluster import LocalCluster

LATENCY_RECORDS = 500


async def _produce(bootstrap: list[str], topic: str, workload: Workload) -> float:
    """Records per second, from the first send to the last acknowledgement."""
    value = b"x" * workload.record_bytes
    acks = 1 if workload.acks == "1" else "all"
    async with Producer(bootstrap, acks=acks, linger_ms=5, batch_size_bytes=65_536) as producer:
        began = time.perf_counter()
        for number in range(workload.records):
            await producer.send(topic, value, partition=number % workload.partitions)
        await producer.flush()
        seconds = time.perf_counter() - began
        assert producer.counters.failed == 0
    return workload.records / seconds


async def _latencies(bootstrap: list[str], topic: str, workload: Workload) -> list[float]:
    """One record at a time, from send to acknowledgement, in ms."""
    value = b"x" * workload.record_bytes
    acks = 1 if workload.acks == "1" else "all"
    found: list[float] = []
    async with Producer(bootstrap, acks=acks) as producer:
        for _ in range(LATENCY_RECORDS):
            began = time.perf_counter()
            await (await producer.send(topic, value, partition=0))
            found.append((time.perf_counter() - began) * 1000)
    return found[len(found) // 10 :]


async def _consume(bootstrap: list[str], topic: str, workload: Workload, total: int) -> float:
    async with Consumer(bootstrap) as consumer:
        consumer_partitions = [TopicPartition(topic, number) for number in range(workload.partitions)]
        consumer.assign(consumer_partitions)
        await consumer.seek_to_beginning()
        began = time.perf_counter()
        read = 0
        while read < total:
            read += len(await consumer.poll(timeout_ms=1_000, max_records=100_000))
        return read / (time.perf_counter() - began)


async def _run(cluster: LocalCluster, workload: Workload, number: int) -> Figures:
    topic = f"bench-{number}"
    bootstrap = cluster.bootstrap_servers
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=workload.partitions, replication_factor=3)
        await admin.wait_for_topic(topic)
    produced = await _produce(bootstrap, topic, workload)
    consumed = await _consume(bootstrap, topic, workload, workload.records)
    latencies = await _latencies(bootstrap, topic, workload)
    return Figures(produced, consumed, percentile(latencies, 0.5), percentile(latencies, 0.99))


async def _first_record(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("first", partitions=1, replication_factor=3)
    async with Producer(cluster.bootstrap_servers) as producer:
        await (await producer.send("first", b"x"))


def run(folder: Path, cells: list[Workload]) -> Side:
    """All workloads, one after the other, on one cluster."""
    side = Side("Tidegauge")
    began = time.perf_counter()
    cluster = LocalCluster.create(folder / "tidegauge", 3, profile="kafka")
    try:
        cluster.up()
        asyncio.run(_first_record(cluster))
        side.start_up_seconds = time.perf_counter() - began
        for number, workload in enumerate(cells):
            side.figures[workload.name] = asyncio.run(_run(cluster, workload, number))
        pids = [cluster.pid_of(entry.id) for entry in cluster.file.brokers]
        side.memory_bytes = resident_bytes([pid for pid in pids if pid is not None])
    finally:
        cluster.down()
    return side
