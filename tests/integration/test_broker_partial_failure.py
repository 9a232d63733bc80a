"""A failure of one partition affects no other: full disks, damaged batches and truncated logs on real brokers.

Two brokers with two log directories each (KIP-112). The directory that is full is one to the lab's disk
(docs/faults.md), so no test needs a disk of its own.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.two_directories import FAST, Brokers, both_are_there
from tests.waiting import until, until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_client.admin import Admin
from tidegauge_client.consumer import Consumer
from tidegauge_client.producer import Producer
from tidegauge_lab.switches import Switches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
PARTITIONS = 6


@pytest.fixture
def brokers(zookeeper, tmp_path, next_base_port) -> Iterator[Brokers]:
    settings = FAST | {"lab.enable": "true", "replica.lag.time.max.ms": "3000", "replica.fetch.wait.max.ms": "300"}
    made = Brokers(f"{zookeeper}/partial-{os.getpid()}-{next_base_port()}", tmp_path, next_base_port(), settings)
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


async def put(brokers: Brokers, at: TopicPartition, *values: str, acks: str | int = "all") -> None:
    """Each value in a batch of its own."""
    async with Producer(brokers.bootstrap, acks=acks) as producer:
        for value in values:
            await (await producer.send(at.topic, value.encode(), partition=at.partition))


async def values_of(brokers: Brokers, admin: Admin, at: TopicPartition) -> list[str]:
    """All committed records."""
    (end,) = (await admin.list_offsets({at: -1})).values()
    found: list[str] = []
    async with Consumer(brokers.bootstrap) as consumer:
        consumer.assign([at])
        await consumer.seek_to_beginning()

        async def at_the_end() -> bool:
            found.extend((record.value or b"").decode() for record in await consumer.poll(timeout_ms=200))
            return await consumer.position(at) >= end.offset

        await until_async(at_the_end)
    return found


async def isr_is(
    admin: Admin, partitions: Sequence[TopicPartition], *broker_ids: int, leader: int | None = None
) -> None:
    await isrs_are(admin, dict.fromkeys(partitions, broker_ids), leader)


async def isrs_are(admin: Admin, wanted: Mapping[TopicPartition, tuple[int, ...]], leader: int | None = None) -> None:
    """Wait until one broker's metadata says so of all: one that was paused still has those from before at first."""

    async def holds() -> bool:
        try:
            infos = {info.name: info for info in await admin.describe_topics([at.topic for at in wanted])}
        except TidegaugeError:
            return False  # no broker responds yet
        parts = [(infos[at.topic].partitions[at.partition], isr) for at, isr in wanted.items()]
        return all(tuple(sorted(part.isr)) == isr and leader in {None, part.leader_id} for part, isr in parts)

    await until_async(holds, limit=150, what=f"in-sync replicas {wanted}")


def home_of(brokers: Brokers, broker_id: int, at: TopicPartition) -> str:
    (name,) = [name for name in "ab" if (brokers.data(broker_id, name) / str(at)).exists()]
    return name


def log_file(brokers: Brokers, broker_id: int, at: TopicPartition) -> Path:
    return brokers.data(broker_id, home_of(brokers, broker_id, at)) / str(at) / "00000000000000000000.log"


async def test_a_full_directory_of_a_follower_costs_no_record_of_the_others(brokers, admin):
    """The first append of a fetch response is refused; appends in the healthy directory are in the log all the same.

    Broker 2 comes back to six partitions that all have news, so one response carries them all.
    """
    spread = [TopicPartition("spread", number) for number in range(PARTITIONS)]
    await admin.create_topic("spread", assignment=[(1, 2)] * PARTITIONS)
    await admin.wait_for_topic("spread")
    for at in spread:
        await put(brokers, at, "first")
    healthy = [at for at in spread if home_of(brokers, 2, at) == "a"]
    full = [at for at in spread if at not in healthy]
    assert healthy
    assert full
    async with Switches(brokers.addresses) as lab:
        await lab.inject_disk(2, errno="ENOSPC", operation="append", path=f"{brokers.data(2, 'b')}")
        brokers.processes[2].send_signal(signal.SIGSTOP)
        for at in spread:
            await put(brokers, at, *(f"{at.partition}-{number}" for number in range(5)), acks=1)
        brokers.processes[2].send_signal(signal.SIGCONT)
    await isrs_are(admin, {at: (1, 2) if at in healthy else (1,) for at in spread})
    for at in healthy:
        await put(brokers, at, "last")
    assert brokers.processes[2].poll() is None
    brokers.end(1, signal.SIGKILL)
    await isr_is(admin, healthy, 2, leader=2)
    for at in healthy:
        wanted = ["first", *(f"{at.partition}-{number}" for number in range(5)), "last"]
        assert await values_of(brokers, admin, at) == wanted, at


async def test_a_full_directory_of_a_leader_refuses_its_own_partitions_alone(brokers, admin):
    topics = [TopicPartition("led", number) for number in range(4)]
    await admin.create_topic("led", assignment=[(1, 2)] * 4)
    await admin.wait_for_topic("led")
    for at in topics:
        await put(brokers, at, "first")
    full = [at for at in topics if home_of(brokers, 1, at) == "a"]
    healthy = [at for at in topics if at not in full]
    async with Switches(brokers.addresses) as lab:
        await lab.inject_disk(1, errno="ENOSPC", operation="append", path=f"{brokers.data(1, 'a')}")
        async with Producer(brokers.bootstrap, acks="all") as producer:
            futures = [await producer.send("led", b"second", partition=at.partition) for at in topics]
            for future in futures:
                await future
    await isr_is(admin, full, 2, leader=2)
    await isr_is(admin, healthy, 1, 2, leader=1)
    for at in topics:
        assert await values_of(brokers, admin, at) == ["first", "second"], at


def damage_length(path: Path, offset: int) -> None:
    """Flip a bit in the length field of the batch at an offset, in place."""
    data = path.read_bytes()
    header = next(header for header in iterate_headers(data) if header.base_offset == offset)
    with path.open("r+b") as file:
        file.seek(header.position + 8)
        file.write(struct.pack(">i", header.batch_length ^ (1 << 20)))


async def test_one_damaged_batch_of_a_leader_stops_nothing_but_its_partition(brokers, admin):
    """A follower fetches just behind a batch whose length is wrong, and the leader has not remembered where."""
    hurt, well = TopicPartition("hurt", 0), TopicPartition("well", 0)
    for at in (hurt, well):
        await admin.create_topic(at.topic, assignment=[(1, 2)])
        await admin.wait_for_topic(at.topic)
        await put(brokers, at, *(f"{number}" for number in range(6)))
    brokers.end(2, signal.SIGKILL)
    await isr_is(admin, [hurt, well], 1)
    for at in (hurt, well):
        await put(brokers, at, "6", "7")
    brokers.end(1)
    brokers.start(1)
    await isr_is(admin, [hurt, well], 1, leader=1)
    damage_length(log_file(brokers, 1, hurt), 4)
    brokers.start(2)
    await isr_is(admin, [well], 1, 2)
    await put(brokers, well, "8")
    until(lambda: "CORRUPT_MESSAGE" in brokers.log_of(1), what="the leader says what is damaged")
    assert "RespondToFetch failed at hurt-0" in brokers.log_of(1)
    await isr_is(admin, [hurt], 1, leader=1)
    assert brokers.processes[1].poll() is None
    assert "Stopping serving logs" not in brokers.log_of(1)
    found: dict[str, list[str]] = {"hurt": [], "well": []}
    async with Consumer(brokers.bootstrap) as consumer:
        consumer.assign([hurt, well])
        await consumer.seek_to_beginning()
        with pytest.raises(TidegaugeError) as caught:
            while True:
                for record in await consumer.poll(timeout_ms=200):
                    found[record.topic].append((record.value or b"").decode())
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert found["hurt"] == ["0", "1", "2", "3"], "the sound batches come before"
    assert await values_of(brokers, admin, well) == [str(number) for number in range(9)]
    await put(brokers, hurt, "8")


async def test_a_log_that_was_truncated_after_a_clean_stop_heals(brokers, admin):
    """The broker starts, the log ends at its last sound batch, and its leader sends the rest again."""
    cut, whole = TopicPartition("cut", 0), TopicPartition("whole", 0)
    for at in (cut, whole):
        await admin.create_topic(at.topic, assignment=[(1, 2)])
        await admin.wait_for_topic(at.topic)
        await put(brokers, at, *(f"{number}" for number in range(6)))
    brokers.end(2)
    path = log_file(brokers, 2, cut)
    before = path.read_bytes()
    path.write_bytes(before[:-100])
    brokers.start(2)
    await isr_is(admin, [cut, whole], 1, 2)
    until(lambda: path.read_bytes() == before, what="the follower has all records again")
    assert "is recovered as after a crash" in brokers.log_of(2)
    assert brokers.processes[2].poll() is None
