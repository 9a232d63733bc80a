"""Commits of one consumer reach its coordinator in the order of the calls (ConsumerCoordinator.commitOffsetsSync)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.cluster import now_ms
from tidegauge_client.group.effects import PrepareJoin
from tidegauge_client.group.group_consumer import GroupConsumer
from tidegauge_client.group.requests import GroupRequests
from tidegauge_client.records import NewRecord, encode_batch

AT = TopicPartition("t", 0)


class Coordinator:
    """Notes the offset of each OffsetCommit; while it does not respond, requests wait."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.responds = asyncio.Event()
        self.responds.set()

    async def commit(
        self, address: str, sent: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        del address, sent
        await self.responds.wait()
        self.committed.append(offsets[AT].offset)
        return {AT: (ErrorCode.NONE, "")}


@pytest.fixture
async def coordinator() -> Coordinator:
    return Coordinator()


def begin(made: GroupConsumer, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a consumer run without a cluster, its commits go to the coordinator, and it read the partition from 0."""
    monkeypatch.setattr(GroupRequests, "commit", coordinator.commit)
    for name in ("request_refresh", "refresh_if_old"):
        monkeypatch.setattr(made._cluster, name, lambda: None)
    made._membership.coordinator_found("b:1", now_ms())
    made._is_running = True
    made.assign([AT])
    made.seek(AT, 0)


@pytest.fixture
async def consumer(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GroupConsumer]:
    made = GroupConsumer("b:1", "g", auto_commit_interval_ms=1_000_000)
    begin(made, coordinator, monkeypatch)
    yield made
    coordinator.responds.set()
    await made.stop()


def offsets(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {AT: OffsetAndMetadata(offset, -1)}


def arrive(consumer: GroupConsumer, first: int, count: int) -> None:
    """Let a fetch bring records."""
    records = encode_batch([NewRecord(b"v")] * count, base_offset=first)
    result = fetch_pb2.FetchPartitionResult(topic="t", partition=0, high_watermark=first + count, records=records)
    consumer._fetched(AT, consumer._subscription.fetch_position(AT), result)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_commit_that_waits_comes_after_those_that_were_begun_before(
    consumer: GroupConsumer, coordinator: Coordinator
) -> None:
    """Else the older offset is the one that stays, and a later member reads the records in between again."""
    called: list[str] = []
    consumer.commit_async(offsets(3), callback=lambda *_: called.append("callback"))
    await consumer.commit_sync(offsets(5))
    assert coordinator.committed == [3, 5]
    assert called == ["callback"], "callbacks of earlier commits are called before commit_sync returns"


async def test_a_commit_comes_after_the_auto_commit_of_the_poll_before(
    consumer: GroupConsumer, coordinator: Coordinator
) -> None:
    """A poll whose records are here already begins its auto commit, and returns without a turn of the event loop."""
    arrive(consumer, 0, 2)
    assert await consumer.poll()
    arrive(consumer, 2, 2)
    consumer._auto_commit.next_ms = now_ms()
    assert await consumer.poll()
    await consumer.commit_sync()
    assert coordinator.committed == [2, 4]


async def test_the_last_commit_of_a_consumer_comes_after_all_others(
    consumer: GroupConsumer, coordinator: Coordinator
) -> None:
    arrive(consumer, 0, 4)
    assert await consumer.poll()
    consumer.commit_async(offsets(2))
    await consumer.stop()
    assert coordinator.committed == [2, 4]


async def test_a_commit_waits_for_earlier_ones_no_longer_than_its_timeout(
    consumer: GroupConsumer, coordinator: Coordinator
) -> None:
    coordinator.responds.clear()
    consumer.commit_async(offsets(3))
    with pytest.raises(TidegaugeError) as late:
        await consumer.commit_sync(offsets(5), timeout_ms=1)
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    coordinator.responds.set()
    await turns()
    assert coordinator.committed == [3], "what was given up is not sent later"


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_partitions_whose_commit_before_a_rebalance_waits_give_no_records(
    assignor: str, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ConsumerCoordinator.maybeMarkPartitionsPendingRevocation (KAFKA-14196): eager members give nothing out then.

    Else the positions get ahead of the committed ones, and the next owner reads those records again.
    """
    made = GroupConsumer("b:1", "g", partition_assignment_strategy=[assignor])
    begin(made, coordinator, monkeypatch)
    arrive(made, 0, 4)
    assert len(await made.poll(max_records=2)) == 2
    coordinator.responds.clear()
    assert not await made._prepare_join(PrepareJoin(is_lost=False), now_ms())
    is_eager = assignor == "range"
    assert [record.offset for record in await made.poll()] == ([] if is_eager else [2, 3])
    coordinator.responds.set()
    await turns()
    assert await made._prepare_join(PrepareJoin(is_lost=False), now_ms())
    assert coordinator.committed == [2]
    await made.stop()
