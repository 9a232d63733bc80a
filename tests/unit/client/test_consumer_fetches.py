"""What a consumer asks leaders for, when the application changes its mind between two turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge_client.consumer import Consumer
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Leader:
    """Leads both partitions, and notes which partitions each Fetch names; it has no records."""

    def __init__(self) -> None:
        self.fetches: list[list[int]] = []
        self.came = asyncio.Event()

    async def fetch(self, request: fetch_pb2.FetchRequest, timeout: float) -> fetch_pb2.FetchResponse:  # noqa: ASYNC109 - as grpc's
        del timeout
        self.fetches.append([one.partition for one in request.partitions])
        self.came.set()
        return fetch_pb2.FetchResponse(
            partitions=[
                fetch_pb2.FetchPartitionResult(
                    topic=one.topic, partition=one.partition, high_watermark=one.fetch_offset
                )
                for one in request.partitions
            ]
        )

    async def list_offsets(self, request: offsets_pb2.ListOffsetsRequest, timeout: float) -> Any:  # noqa: ASYNC109 - as grpc's
        del timeout
        return offsets_pb2.ListOffsetsResponse(
            partitions=[
                offsets_pb2.ListOffsetsResult(topic=one.topic, partition=one.partition, offset=7)
                for one in request.partitions
            ]
        )


@pytest.fixture
async def leader() -> Leader:
    return Leader()


@pytest.fixture
async def consumer(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Consumer]:
    made = Consumer("b:1")
    partitions = {number: PartitionInfo("t", number, 0, 0, (0,), (0,)) for number in (0, 1)}
    made._cluster.info = ClusterInfo(brokers={0: BrokerInfo(0, "b", 1)}, topics={"t": TopicInfo("t", "", partitions)})
    stub = SimpleNamespace(Fetch=leader.fetch, ListOffsets=leader.list_offsets)
    monkeypatch.setattr(made._cluster.channels, "broker", lambda _: stub)
    for name in ("request_refresh", "refresh_if_old"):
        monkeypatch.setattr(made._cluster, name, lambda: None)
    made._is_running = True
    made.assign([A, B])
    for at in (A, B):
        made.seek(at, 3)
    yield made
    await made.stop()


async def fetched_after(consumer: Consumer, leader: Leader, change: Callable[[], None]) -> list[int]:
    """Change what is read just after a poll has begun a fetch, and return what the next fetch names."""
    assert await consumer.poll() == []  # it returns without a turn of the event loop: its fetch has not begun
    assert not leader.fetches
    change()
    leader.came.clear()
    polling = asyncio.ensure_future(consumer.poll(3_600_000))
    for _ in range(50):
        await asyncio.sleep(0)
    polling.cancel()
    await asyncio.wait({polling})
    return leader.fetches[-1] if leader.fetches else []


async def test_a_partition_that_is_given_up_before_its_fetch_begins_stops_no_other(
    consumer: Consumer, leader: Leader
) -> None:
    """Else nothing is fetched from its leader any more: a group that rebalances between two polls read nothing."""
    assert await fetched_after(consumer, leader, lambda: consumer.assign([B])) == [1]


async def test_a_position_that_is_looked_up_before_its_fetch_begins_is_fetched_then(
    consumer: Consumer, leader: Leader
) -> None:
    """A seek to the end in the turn of a poll, for all partitions of the leader."""

    def seek_to_end() -> None:
        for at in (A, B):
            consumer._subscription.reset(at, consumer._subscription._policy)

    assert sorted(await fetched_after(consumer, leader, seek_to_end)) == [0, 1]
