"""Storage on real brokers: one of several log directories fails, retention, delete-records, compaction.

The brokers of this file are started by hand, because each has two log directories.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.two_directories import Brokers, both_are_there
from tests.waiting import until, until_async

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.consumer import Consumer
from tidegauge_client.producer import Producer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def brokers(zookeeper, tmp_path_factory, next_base_port) -> Iterator[Brokers]:
    made = Brokers(f"{zookeeper}/storage-{os.getpid()}", tmp_path_factory.mktemp("storage"), next_base_port())
    made.start(1)
    made.start(2)
    yield made
    for broker_id in list(made.processes):
        made.end(broker_id, signal.SIGKILL)


@pytest.fixture
async def admin(brokers):
    async with Admin(brokers.bootstrap) as made:
        await until_async(lambda: both_are_there(made), limit=150)
        yield made


async def create(admin: Admin, name: str, partitions: int = 1, **configs: Any) -> None:
    settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
    await admin.create_topic(name, partitions=partitions, replication_factor=2, configs=settings)
    await admin.wait_for_topic(name)


async def put(brokers: Brokers, topic: str, *records: tuple[bytes | None, bytes | None], **options: Any) -> None:
    """Each record in a batch of its own, acknowledged by all."""
    async with Producer(brokers.bootstrap) as producer:
        for key, value in records:
            await (await producer.send(topic, value, key, **options))


async def read(brokers: Brokers, admin: Admin, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """All committed records of partition 0."""
    at = TopicPartition(topic, 0)
    (end,) = (await admin.list_offsets({at: -1})).values()
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    async with Consumer(brokers.bootstrap) as consumer:
        consumer.assign([at])
        await consumer.seek_to_beginning()

        async def at_the_end() -> bool:
            rows.extend((one.offset, one.key, one.value) for one in await consumer.poll(timeout_ms=200))
            return await consumer.position(at) >= end.offset

        await until_async(at_the_end)
    return rows


async def starts(admin: Admin, topic: str) -> dict[int, int]:
    """The log start offset of each replica of partition 0, by broker."""
    replicas = await admin.describe_replicas([topic])
    return {broker: found[0].log_start_offset for broker, found in replicas.items() if found}


async def test_retention_removes_segments_and_every_replica_and_reader_sees_it(brokers, admin):
    await create(admin, "aged", retention_bytes=300, segment_bytes=200)
    await put(brokers, "aged", *((None, b"x" * 60) for _ in range(12)))

    async def short() -> bool:
        found = await starts(admin, "aged")
        return len(found) == 2 and min(found.values()) >= 8

    await until_async(short)
    (offset,) = (await admin.list_offsets({TopicPartition("aged", 0): -2})).values()
    rows = await read(brokers, admin, "aged")
    assert [row[0] for row in rows] == list(range(offset.offset, 12))
    directories = [path for name in "ab" for path in brokers.data(1, name).glob("aged-0")]
    until(lambda: not list(directories[0].glob("*.deleted")), what="the files go after their delay")


async def test_delete_records_moves_all_replicas_and_survives_a_kill(brokers, admin):
    await create(admin, "cut")
    await put(brokers, "cut", *((None, b"%d" % at) for at in range(10)))
    at = TopicPartition("cut", 0)
    assert await admin.delete_records({at: 4}) == {at: 4}

    async def both() -> bool:  # a busy broker may not respond in time
        return await starts(admin, "cut") == {1: 4, 2: 4}

    await until_async(both)
    refused = (await admin.delete_records({at: 11}))[at]
    assert "OFFSET_OUT_OF_RANGE" in str(refused)
    written = [brokers.data(1, name) / "log-start-offset-checkpoint" for name in "ab"]
    until(lambda: any("cut 0 4" in path.read_text() for path in written if path.exists()))
    brokers.end(1, signal.SIGKILL)
    brokers.start(1)

    async def back() -> bool:
        return (await starts(admin, "cut")).get(1) == 4

    await until_async(back, limit=150)
    assert [row[0] for row in await read(brokers, admin, "cut")] == [4, 5, 6, 7, 8, 9]


async def test_a_compacted_topic_keeps_the_last_record_of_each_key(brokers, admin):
    await create(
        admin,
        "table",
        cleanup_policy="compact",
        segment_bytes=250,
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=0,
    )
    await put(brokers, "table", *((b"k%d" % (at % 3), b"%d" % at) for at in range(20)), (b"k0", None), (b"end", b"1"))

    async def compacted() -> bool:
        await put(brokers, "table", (b"end", b"2"))  # a tombstone goes with the second compaction that meets it
        rows = await read(brokers, admin, "table")
        keys = [key for _, key, _ in rows]
        return keys.count(b"k1") == 1 and keys.count(b"k2") == 1 and b"k0" not in keys

    await until_async(compacted)
    rows = await read(brokers, admin, "table")
    assert (19, b"k1", b"19") in rows
    assert (17, b"k2", b"17") in rows
    assert rows[-1][1:] == (b"end", b"2")
    with pytest.raises(TidegaugeError, match="INVALID_RECORD"):
        await put(brokers, "table", (None, b"no key"))


async def test_one_directory_fails_and_only_its_replicas_go_offline(brokers, admin):
    """KIP-112: the broker goes on with its other directory, leaders move away; a restart brings all back."""
    await create(admin, "many", partitions=4)
    homes = {path.name: name for name in "ab" for path in brokers.data(1, name).glob("many-*")}
    assert sorted(homes.values()) == ["a", "a", "b", "b"]
    lost = {int(topic.rpartition("-")[2]) for topic, home in homes.items() if home == "b"}
    for number in range(4):
        await put(brokers, "many", (None, b"before"), partition=number)
    brokers.data(1, "b").rename(brokers.data(1, "gone"))

    async def moved() -> bool:
        (info,) = await admin.describe_topics(["many"])
        return all(
            part.leader_id == 2 and part.isr == (2,) if number in lost else 1 in part.isr
            for number, part in info.partitions.items()
        )

    await until_async(moved, limit=150)
    assert "Stopping serving logs in dir" in brokers.log_of(1)
    assert brokers.processes[1].poll() is None, "the broker goes on"
    for number in range(4):
        await put(brokers, "many", (None, b"meanwhile"), partition=number)
    brokers.data(1, "gone").rename(brokers.data(1, "b"))
    brokers.end(1, signal.SIGKILL)
    brokers.start(1)

    async def whole() -> bool:
        (info,) = await admin.describe_topics(["many"])
        return all(sorted(part.isr) == [1, 2] for part in info.partitions.values())

    await until_async(whole, limit=150)
    ends = await admin.list_offsets({TopicPartition("many", number): -1 for number in range(4)})
    assert [end.offset for end in ends.values()] == [2, 2, 2, 2]


async def test_the_last_directory_that_fails_ends_the_broker(brokers, admin):
    """LogDirFailureChannel: "Shutdown broker because all log dirs have failed", exit 1."""
    for name in "ab":
        brokers.data(2, name).rename(brokers.data(2, f"{name}-gone"))
    assert brokers.processes[2].wait(150) == 1
    assert "all log dirs have failed" in brokers.log_of(2)
