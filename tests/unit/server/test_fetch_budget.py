"""Maximum size of a fetch response (ReplicaManager.readFromLog): soft for the first batch, hard for the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import RespondToFetch
from tidegauge_broker.replica.messages import FetchRequest, FetchResult, ReadRange
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

BATCH_BYTES = 100
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


class TenBatches:
    """A log of ten batches of one record."""

    def read(self, from_offset: int, upper_bound: int, max_bytes: int, *, at_least_one_batch: bool) -> bytes:
        count = max_bytes // BATCH_BYTES
        if at_least_one_batch:
            count = max(count, 1)
        return bytes(BATCH_BYTES) * min(count, upper_bound - from_offset)


class Stand:
    """The core and the logs of a ReplicaManager, for this one response."""

    def __init__(self, results: list[FetchResult], max_bytes: int) -> None:
        self.results = results
        self.max_bytes = max_bytes

    def fetch(self, _request: FetchRequest, token: object, _now_ms: int) -> list[RespondToFetch]:
        return [RespondToFetch(token, self.results, self.max_bytes)]

    def next_deadline_ms(self) -> int:
        return 1_000_000

    def get(self, _topic_partition: TopicPartition) -> TenBatches:
        return TenBatches()


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes", "batches"),
    [
        (10_000, 10_000, [10, 10, 10]),
        (1_500, 10_000, [10, 5, 0]),  # the whole is full
        (10_000, 300, [3, 3, 3]),  # each partition has its own limit
        (10, 10_000, [1, 0, 0]),  # the first batch always comes, and only the first partition's
        (10_000, 10, [1, 0, 0]),
        (150, 10_000, [1, 0, 0]),  # whole batches only
    ],
)
async def test_the_first_batch_comes_whatever_its_size(
    max_bytes: int, partition_max_bytes: int, batches: list[int]
) -> None:
    results = [FetchResult(at, read=ReadRange(0, 10, partition_max_bytes)) for at in PARTITIONS]
    assert await counted(results, max_bytes) == batches


async def test_a_partition_without_records_does_not_use_up_the_first_batch() -> None:
    results = [FetchResult(PARTITIONS[0]), FetchResult(PARTITIONS[1], read=ReadRange(0, 10, 10))]
    assert await counted(results, 10) == [0, 1]


async def counted(results: list[FetchResult], max_bytes: int) -> list[int]:
    """How many batches each partition of the response has."""
    stand: Any = Stand(results, max_bytes)
    unused: Any = None
    manager = ReplicaManager(stand, stand, unused, lambda: 0, unused)
    request = FetchRequest(-1, 0, 1, max_bytes, [])
    response = await asyncio.wait_for(manager.fetch(request), 30)
    manager.close()
    return [len(records) // BATCH_BYTES for _, records in response]
