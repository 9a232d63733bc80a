"""Spark against a real cluster: every committed record exactly once in the output, whatever dies.

Each of these tests starts Spark, which takes most of its time; the transport has tests of its own without Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.integration.spark_runs import Acknowledged, Job, check_exactly_once
from tests.waiting import pace, until_async

from tidegauge.partition import TopicPartition
from tidegauge_client import Admin, Producer
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import Role, RoleKind

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1_200)]

LATEST = -1
Batches = Callable[[str], Awaitable[None]]
"""Waits for two more batches of the job; the string says what for."""
Faults = Callable[[LocalCluster, str, Batches], AbstractAsyncContextManager[None]]
"""Faults on a cluster and one of its topics."""


@pytest.fixture
def make_job(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    made: list[Job] = []

    def make(topic: str) -> Job:
        made.append(Job(tmp_path, cluster, topic))
        return made[-1]

    yield make
    for job in made:
        job.clean_up()


def _there_is(directory: Path, files: str) -> bool:
    return any(directory.glob(files))


async def create_topic(cluster: LocalCluster, topic: str) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(
            topic, partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"}, timeout_ms=30_000
        )


def leader_of(cluster: LocalCluster, topic: str, partition: int) -> int:
    return cluster.resolve(Role(RoleKind.LEADER, TopicPartition(topic, partition)))


async def high_watermarks(cluster: LocalCluster, topic: str) -> dict[int, int]:
    async with Admin(cluster.bootstrap_servers) as admin:
        offsets = await admin.list_offsets({TopicPartition(topic, index): LATEST for index in range(3)})
    return {partition.partition: found.offset for partition, found in offsets.items()}


async def produce(producer: Producer, topic: str, numbers: range, acknowledged: Acknowledged) -> None:
    """Send distinct values and note where each was acknowledged."""
    futures = {}
    for number in numbers:
        value = b"value-%d" % number
        futures[value] = await producer.send(topic, value, b"key-%d" % (number % 50))
    await producer.flush()
    for value, future in futures.items():
        place = await future
        acknowledged[value] = (place.partition, place.offset)


async def produce_until(
    stop: asyncio.Event, producer: Producer, topic: str, first: int, acknowledged: Acknowledged
) -> None:
    """The same without end, so that the faults of a test meet a stream however long they take."""
    while not stop.is_set():
        await produce(producer, topic, range(first, first + 100), acknowledged)
        first += 100
        await pace(0.02)


@asynccontextmanager
async def killed(cluster: LocalCluster, topic: str, batches: Batches) -> AsyncIterator[None]:
    """kill -9 of a leader and of the controller, each back after batches without it."""
    for role in (Role(RoleKind.LEADER, TopicPartition(topic, 0)), Role(RoleKind.CONTROLLER)):
        victim = await asyncio.to_thread(cluster.resolve, role)
        # A controller of KRaft mode is no member of the cluster, so nothing of it could end.
        is_member = victim in {broker.id for broker in cluster.file.brokers}
        await asyncio.to_thread(cluster.kill, victim, expire=is_member)
        await batches(f"batches after the kill of the {role}")
        await asyncio.to_thread(cluster.start, victim)
    yield


@asynccontextmanager
async def frozen(cluster: LocalCluster, topic: str, batches: Batches) -> AsyncIterator[None]:
    """SIGSTOP of a leader, which stays frozen until the stream is at its end."""
    leader = leader_of(cluster, topic, 1)
    await asyncio.to_thread(cluster.pause, leader)
    try:
        await batches("batches while a leader is frozen")
        yield
    finally:
        await asyncio.to_thread(cluster.resume, leader)


async def stream_through(cluster: LocalCluster, job: Job, topic: str, faults: Faults) -> None:
    """Run the job on a topic that is written all the time, through these faults; SIGTERM ends it with 0."""
    await create_topic(cluster, topic)
    job.start()
    acknowledged: Acknowledged = {}

    async def batches(what: str) -> None:
        seen = len(job.progress())
        await job.wait(what, lambda: len(job.progress()) > seen + 1)

    async with Producer(cluster.bootstrap_servers, acks="all") as producer:
        await produce(producer, topic, range(200), acknowledged)
        await job.wait("the first batch", lambda: bool(job.progress()))
        stop = asyncio.Event()
        stream = asyncio.create_task(produce_until(stop, producer, topic, 200, acknowledged))
        await batches("batches of the stream")
        async with faults(cluster, topic, batches):
            stop.set()
            await stream
            hoped = dict.fromkeys(range(3), 0)
            for partition, offset in acknowledged.values():
                hoped[partition] = max(hoped[partition], offset + 1)
            await job.wait("all that is acknowledged", lambda: job.end_offsets(topic) == hoped)

    async def all_leaders_agree() -> bool:
        return await high_watermarks(cluster, topic) == hoped

    await until_async(all_leaders_agree, what="a thawed broker learns that it leads no more, and all tell the end")
    assert job.process is not None
    job.process.terminate()
    summary = await job.end()
    assert summary["end_offsets"] == {topic: {str(index): offset for index, offset in sorted(hoped.items())}}
    assert summary["rows"] == len(acknowledged) == sum(batch["rows"] for batch in job.progress())
    assert summary["batches"] == len(job.progress()) >= 3
    check_exactly_once(job.output, topic, acknowledged)


async def test_exactly_once_through_killed_leaders(cluster: LocalCluster, make_job: Callable[[str], Job]) -> None:
    """On through kill -9 of a leader and of the controller."""
    await stream_through(cluster, make_job("spark-killed"), "spark-killed", killed)


@pytest.mark.long
async def test_exactly_once_through_a_frozen_leader(cluster: LocalCluster, make_job: Callable[[str], Job]) -> None:
    """A frozen leader holds up its partition until the request's time is over, and no record is missing after it."""
    await stream_through(cluster, make_job("spark-frozen"), "spark-frozen", frozen)


IN_THE_MAKING = ("a batch in the making", "_staging/*/**/*.parquet")
WRITTEN = ("a batch's file", "part-*.parquet")


@pytest.mark.long
async def test_exactly_once_when_the_driver_is_killed_in_mid_batch(
    cluster: LocalCluster, make_job: Callable[[str], Job]
) -> None:
    """kill -9 while a batch is written, and after its file appeared; then AvailableNow by spark-submit finds all."""
    topic = "spark-driver"
    await create_topic(cluster, topic)
    acknowledged: Acknowledged = {}
    async with Producer(cluster.bootstrap_servers, acks="all") as producer:
        await produce(producer, topic, range(3000), acknowledged)
    job = make_job(topic)
    limit = ("--max-offsets-per-trigger", "600")

    for what, files in (IN_THE_MAKING, WRITTEN):
        job.start(*limit)
        await job.wait(what, partial(_there_is, job.output, files))
        job.kill()

    job.start("--available-now", *limit, with_spark_submit=True)
    summary = await job.end()
    assert summary["end_offsets"] == {
        topic: {str(index): offset for index, offset in (await high_watermarks(cluster, topic)).items()}
    }
    assert summary["batches"] >= 4, "AvailableNow keeps the limit: SupportsTriggerAvailableNow"
    check_exactly_once(job.output, topic, acknowledged)
    assert not list(job.output.glob("_staging/**/*.parquet"))
