"""Producer and consumer on real brokers: each record once and in order, whatever dies or freezes."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tests.waiting import until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client import Admin, Consumer, ConsumerRecord, Producer, RecordMetadata, TopicPartition
from tidegauge_client.sync import SyncAdmin, SyncConsumer, SyncProducer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = pytest.mark.integration

TIDEGAUGE = Path(sys.executable).with_name("tidegauge")
_names = itertools.count()


async def make_topic(servers: list[str], *, partitions: int = 3, min_isr: int = 2) -> str:
    name = f"delivery-{next(_names)}"
    async with Admin(servers) as admin:
        await admin.create_topic(
            name, partitions=partitions, replication_factor=3, configs={"min.insync.replicas": str(min_isr)}
        )
        await admin.wait_for_topic(name)
    return name


async def leader_of(servers: list[str], topic: str, partition: int = 0) -> int:
    async with Admin(servers) as admin:
        (info,) = await admin.describe_topics([topic])
    leader = info.partitions[partition].leader_id
    assert leader is not None
    return leader


async def read_all(servers: list[str], topic: str, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        async with asyncio.timeout(150):
            while len(records) < count:
                records += await consumer.poll(500)
        assert await consumer.poll(200) == []
    return records


def check_exactly_once(records: list[ConsumerRecord], keys: int, count: int) -> None:
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(int(record.value or b"-1"))
    assert {key: values for key, values in by_key.items() if values != sorted(values)} == {}
    assert sorted(itertools.chain.from_iterable(by_key.values())) == list(range(count))
    assert len(by_key) == keys


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_each_record_is_written_once_and_in_order_through_a_failover(cluster: LocalCluster, fault: str) -> None:
    """The leader dies or freezes in the middle of the stream, while a consumer reads."""
    servers = cluster.bootstrap_servers
    topic, count, keys = await make_topic(servers), 20_000, 7
    victim = await leader_of(servers, topic)
    reader = asyncio.create_task(read_all(servers, topic, count))
    promises: list[asyncio.Future[RecordMetadata]] = []
    async with Producer(servers, linger_ms=5, request_timeout_ms=4_000) as producer:
        for number in range(count):
            if number == count // 3:
                await asyncio.to_thread(getattr(cluster, fault), victim)
            promises.append(await producer.send(topic, b"%d" % number, b"key-%d" % (number % keys)))
        await producer.flush()
        assert (producer.counters.acked, producer.counters.failed) == (count, 0)
    records = await reader

    check_exactly_once(records, keys, count)
    where = {(record.partition, record.offset): record.value for record in records}
    for number, promise in enumerate(promises):
        acknowledged = promise.result()
        assert where[acknowledged.partition, acknowledged.offset] == b"%d" % number
    await asyncio.to_thread(getattr(cluster, "start" if fault == "kill" else "resume"), victim)


async def test_a_frozen_bootstrap_server_is_passed_over(cluster: LocalCluster) -> None:
    """Addresses are tried in turn: no request fails by its timeout."""
    servers = cluster.bootstrap_servers
    topic = await make_topic(servers)
    cluster.pause(0)
    try:
        async with Admin(servers) as admin:
            for _ in range(3):
                await admin.describe_topics([topic])

            async def others_respond() -> bool:
                replicas = await admin.describe_replicas([topic])
                assert replicas.get(0) is None
                return all(replicas[broker] for broker in replicas if broker != 0)

            await until_async(others_respond)
    finally:
        cluster.resume(0)


async def test_too_few_replicas_is_waited_out_and_then_reported(cluster: LocalCluster) -> None:
    """NOT_ENOUGH_REPLICAS is retried until the delivery timeout; the error names it."""
    servers = cluster.bootstrap_servers
    topic = await make_topic(servers, partitions=1, min_isr=3)
    leader = await leader_of(servers, topic)
    follower = (leader + 1) % 3
    await asyncio.to_thread(cluster.stop, follower)
    try:
        async with Producer(servers, delivery_timeout_ms=4_000, request_timeout_ms=3_000) as producer:
            promise = await producer.send(topic, b"v")
            with pytest.raises(TidegaugeError, match="NOT_ENOUGH_REPLICAS") as caught:
                await promise
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    finally:
        await asyncio.to_thread(cluster.start, follower)


async def test_a_consumer_begins_at_the_given_position(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    topic = await make_topic(servers, partitions=1)
    tp = TopicPartition(topic, 0)
    async with Producer(servers) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number)
        await producer.flush()
        async with Consumer(servers) as consumer:
            consumer.assign([tp])
            await consumer.seek_to_end()
            assert await consumer.position(tp) == 10
            consumer.seek(tp, 7)
            assert [r.value for r in await consumer.poll(60_000)] == [b"7", b"8", b"9"]
            await (await producer.send(topic, b"new"))
            assert [r.value for r in await consumer.poll(60_000)] == [b"new"]
            consumer.seek(tp, 99)

            async def reset() -> bool:
                assert await consumer.poll(100) == []
                return await consumer.position(tp) == 11

            await until_async(reset, what="out of range: reset to latest")
        async with Consumer(servers, auto_offset_reset="none") as consumer:
            consumer.assign([tp])
            consumer.seek(tp, 99)
            with pytest.raises(TidegaugeError, match="out of range"):
                await consumer.poll(60_000)


def test_the_facades_do_the_same_without_await(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    topic = f"facade-{next(_names)}"
    with SyncAdmin(servers) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=3)
        admin.wait_for_topic(topic)
        with SyncProducer(servers) as producer:
            assert [producer.send(topic, b"v").result(150).offset for _ in range(3)] == [0, 1, 2]
        assert admin.list_offsets({TopicPartition(topic, 0): -1})[TopicPartition(topic, 0)].offset == 3
    with SyncConsumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert [record.offset for record in consumer.poll(60_000)] == [0, 1, 2]


def tidegauge(cluster: LocalCluster, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    servers = ",".join(cluster.bootstrap_servers)
    return subprocess.run(
        [TIDEGAUGE, *arguments, "-b", servers], input=stdin, capture_output=True, timeout=150, check=False
    )


def test_what_is_produced_is_consumed_byte_for_byte(cluster: LocalCluster) -> None:
    """Split at newlines only, nothing decoded or stripped, null key and empty value."""
    topic = f"bytes-{next(_names)}"
    assert tidegauge(cluster, "create-topic", topic, "--partitions", "1").stdout == f"Created topic {topic}.\n".encode()
    data = b"a\r\n\n \xff\x00tab\there\nlast"
    produced = tidegauge(cluster, "produce", topic, stdin=data)
    assert produced.returncode == 0, produced.stderr
    assert b"Sent 4 records" in produced.stderr
    consumed = tidegauge(cluster, "consume", topic, "--from-beginning", "--max-messages", "4")
    assert consumed.stdout == data + b"\n"
    assert consumed.stderr.endswith(b"Processed a total of 4 messages\n")
    again = tidegauge(cluster, "produce", topic, "--partition", "9", stdin=b"x")
    assert (again.returncode, b"There is no partition" in again.stderr) == (1, True)


def test_a_line_without_a_key_is_named_and_those_before_it_are_written(cluster: LocalCluster) -> None:
    topic = f"keys-{next(_names)}"
    tidegauge(cluster, "create-topic", topic, "--partitions", "1")
    done = tidegauge(cluster, "produce", topic, "--key-separator", "\\t", stdin=b"k\tv\tw\nnone\n")
    assert done.returncode == 1
    assert b"No key separator found on line number 2" in done.stderr
    read = tidegauge(cluster, "consume", topic, "--from-beginning", "--max-messages", "1", "--format", "%k=%v;")
    assert read.stdout == b"k=v\tw;"


def test_wait_exits_4_with_what_is_true_and_124_when_no_broker_responds(cluster: LocalCluster) -> None:
    topic = f"wait-{next(_names)}"
    tidegauge(cluster, "create-topic", topic, "--partitions", "1", "--replication-factor", "3")
    assert tidegauge(cluster, "wait", "--in-sync", topic).returncode == 0
    missed = tidegauge(cluster, "wait", "--hw", f"{topic}-0=5", "--timeout-ms", "3000")
    assert (missed.returncode, b"the high watermark of" in missed.stderr) == (4, True)
    alone = subprocess.run(
        [TIDEGAUGE, "wait", "--in-sync", "-b", "127.0.0.1:1", "--timeout-ms", "100"],
        capture_output=True,
        timeout=150,
        check=False,
    )
    assert alone.returncode == 124


async def test_a_topic_that_is_created_again_is_written_and_read_on(cluster: LocalCluster) -> None:
    """Its leader epochs begin at 0, below those that producer and consumer know of the deleted topic."""
    servers = cluster.bootstrap_servers
    topic = await make_topic(servers, partitions=1)
    tp = TopicPartition(topic, 0)

    async with (
        Producer(servers) as producer,
        Admin(servers) as admin,
        Consumer(servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([tp])
        victim = await leader_of(servers, topic)
        await asyncio.to_thread(cluster.kill, victim, expire=True)
        await (await producer.send(topic, b"before"))
        assert [record.value for record in await consumer.poll(60_000)] == [b"before"]
        await asyncio.to_thread(cluster.start, victim)
        await admin.delete_topic(topic)

        async def created() -> bool:
            try:  # a client that asks for a topic has it created, too (auto.create.topics.enable)
                await admin.create_topic(topic, partitions=1, replication_factor=3)
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            return bool((await admin.metadata([topic])).topics[topic].partitions)

        await until_async(created, what="the deletion has ended, and there is a new topic")
        await admin.wait_for_topic(topic)
        async with asyncio.timeout(150):
            acknowledged = await (await producer.send(topic, b"after"))
            assert acknowledged.offset == 0
            read: list[bytes | None] = []
            while not read:
                read += [record.value for record in await consumer.poll(500)]
        assert read == [b"after"]
