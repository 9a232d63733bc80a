"""A consumer's fetches, when the application changes its mind between two turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge_client.consumer import Consumer
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.records import NewRecord, encode_batch

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
    """Change the positions just after a poll has begun a fetch; return the offsets of the next fetch."""
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


async def test_a_partition_that_can_not_be_read_is_raised_though_another_one_has_records(
    consumer: Consumer, leader: Leader
) -> None:
    """FetchCollector.collectFetch: a poll that has given the records before it raises it in the next one."""
    consumer._subscription.report(A, TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "damaged"))
    result = fetch_pb2.FetchPartitionResult(
        topic="t", partition=1, high_watermark=9, records=encode_batch([NewRecord(b"v")] * 6, base_offset=3)
    )
    consumer._fetched(B, consumer._subscription.fetch_position(B), result)
    with pytest.raises(TidegaugeError, match="damaged"):
        await consumer.poll(0, max_records=1)
    assert [record.offset for record in await consumer.poll(0, max_records=1)] == [3]


async def test_of_a_topic_that_was_created_again_no_fetch_names_the_epoch_of_the_deleted_one(
    consumer: Consumer, leader: Leader
) -> None:
    """Its leader would have UNKNOWN_LEADER_EPOCH for each, until its own epochs are as high."""

    def now_known(topic_id: str, epoch: int) -> None:
        partitions = {number: PartitionInfo("t", number, 0, epoch, (0,), (0,)) for number in (0, 1)}
        info = ClusterInfo(brokers={0: BrokerInfo(0, "b", 1)}, topics={"t": TopicInfo("t", topic_id, partitions)})
        consumer._cluster.info = info
        consumer._metadata_changed()

    now_known("old", 7)
    assert consumer._subscription.fetch_position(A).leader_epoch == 7
    now_known("old", 6)
    assert consumer._subscription.fetch_position(A).leader_epoch == 7, "old metadata of the same topic"
    now_known("new", 0)
    assert consumer._subscription.fetch_position(A).leader_epoch == 0
