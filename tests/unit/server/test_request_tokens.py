"""A request in the core is a future; to cancel it takes it out of the purgatory, and no task waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kafka_cluster import LEADER, TOPIC, KafkaCluster

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    CONSUMER,
    FetchPartition,
    FetchRequest,
    ProducePartition,
    ProduceRequest,
)
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_client.records import NewRecord, encode_batch

AT = TopicPartition(TOPIC, 0)
BATCH = encode_batch([NewRecord(value=b"x")])


class Room:
    """Notes what becomes of a response's memory."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.released = 0

    def limit_bytes(self, max_bytes: int) -> int:
        return max_bytes

    def hold(self, size_bytes: int) -> None:
        self.held_bytes = size_bytes

    def release(self) -> None:
        self.released += 1


@contextlib.asynccontextmanager
async def leader(directory: Path, broker_count: int) -> AsyncIterator[ReplicaManager]:
    cluster = KafkaCluster(directory, 1, broker_count)
    try:
        await cluster.start()
        await cluster.until_followers_wait()
        yield cluster.brokers[LEADER].replicas
    finally:
        await cluster.close()


def fetch(offset: int) -> FetchRequest:
    return FetchRequest(CONSUMER, 60_000, 1, 1 << 20, [FetchPartition(AT, offset, 1 << 20)])


async def test_a_cancelled_fetch_leaves_the_purgatory_and_gives_its_room_up(tmp_path: Path) -> None:
    async with leader(tmp_path, 1) as replicas:
        room = Room()
        parked = replicas.begin_fetch(fetch(0), room)
        assert replicas.core.waiting_operations()["Fetch"] == 1
        parked.cancel()
        assert (replicas.core.waiting_operations()["Fetch"], room.released) == (0, 1)
        parked.cancel()
        assert room.released == 1


async def test_a_fetch_with_a_response_keeps_its_room_until_the_wire_releases_it(tmp_path: Path) -> None:
    async with leader(tmp_path, 1) as replicas:
        await replicas.produce(ProduceRequest(1, 1000, [ProducePartition(AT, BATCH)]))
        room = Room()
        done = replicas.begin_fetch(fetch(0), room)
        assert not done.cancel()
        assert (room.held_bytes, room.released) == (len(BATCH), 0)


@pytest.mark.parametrize("has_response", [False, True])
async def test_a_task_that_is_cancelled_while_it_waits_for_a_fetch_releases_the_room(
    tmp_path: Path, *, has_response: bool
) -> None:
    """Also where the response has come, and the task has had no turn since."""
    async with leader(tmp_path, 1) as replicas:
        room = Room()
        waiting = asyncio.create_task(replicas.fetch(fetch(0), room))
        while replicas.core.waiting_operations()["Fetch"] == 0:  # noqa: ASYNC110 - nothing else would tell
            await asyncio.sleep(0)
        if has_response:
            replicas.produce(ProduceRequest(1, 1000, [ProducePartition(AT, BATCH)]))
            while not room.held_bytes:  # noqa: ASYNC110 - nothing else would tell
                await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (replicas.core.waiting_operations()["Fetch"], room.released) == (0, 1)


async def test_a_cancelled_produce_leaves_the_purgatory(tmp_path: Path) -> None:
    """Its records stay, and its producer has no response."""
    async with leader(tmp_path, 3) as replicas:
        parked = replicas.produce(ProduceRequest(ACKS_ALL, 60_000, [ProducePartition(AT, BATCH)]))
        assert replicas.core.waiting_operations()["Produce"] == 1
        parked.cancel()
        assert replicas.core.waiting_operations()["Produce"] == 0


async def test_a_followers_parked_fetch_has_no_task(tmp_path: Path) -> None:
    """A task for each takes two turns of the event loop, and as much time as the core does for the fetch."""
    async with leader(tmp_path, 3) as replicas:
        assert replicas.core.waiting_operations()["Fetch"] == 2
        names = {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        assert names == {"fetcher-of-0"}
