"""A follower takes a large response in parts, with turns of the event loop between, as if it were one.

Counted are batches and bytes of each step, never a duration. A follower that catches up on batches of one record took a
response of 10 MB in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import LEADER, NOW_MS, TOPIC, KafkaCluster

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.messages import FetchedPartition, FetchRound, ProducePartition, ProduceRequest
from tidegauge_broker.server.replication import fetch_parts
from tidegauge_broker.server.replication.fetch_parts import is_one_part, parts_of
from tidegauge_client.records import NewRecord, encode_batch

BATCH = encode_batch([NewRecord(value=b"v", timestamp_ms=NOW_MS)])
FOLLOWER = 1


def fetched(number: int, records: bytes) -> FetchedPartition:
    return FetchedPartition(TopicPartition(TOPIC, number), high_watermark=7, records=records)


def shape(parts: Any) -> list[list[tuple[int, int, bool]]]:
    return [
        [(one.topic_partition.partition, len(one.records) // len(BATCH), one.has_more) for one in part]
        for part in parts
    ]


@pytest.fixture(autouse=True)
def few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_parts, "BATCHES_PER_PART", 5)


def test_records_are_divided_between_batches_and_say_that_more_follows() -> None:
    response = [fetched(0, BATCH * 12), fetched(1, b""), fetched(2, BATCH * 2), fetched(3, BATCH)]
    assert shape(parts_of(response)) == [
        [(0, 5, True)],
        [(0, 5, True)],
        [(0, 2, False), (1, 0, False), (2, 2, False)],
        [(3, 1, False)],
    ]
    assert b"".join(one.records for part in parts_of(response) for one in part) == BATCH * 15
    assert all(one.high_watermark == 7 for part in parts_of(response) for one in part)


def test_a_part_has_few_bytes_or_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_parts, "BYTES_PER_PART", 2 * len(BATCH))
    large = encode_batch([NewRecord(value=bytes(1000), timestamp_ms=NOW_MS)])
    response = [fetched(0, BATCH * 3 + large), fetched(1, large)]
    sizes = [[len(one.records) for one in part] for part in parts_of(response)]
    assert sizes == [[2 * len(BATCH)], [len(BATCH)], [len(large)], [len(large)]]


@pytest.mark.parametrize("tail", [BATCH[:-1], BATCH[:20], b"\xff" * 80, bytes(80)])
def test_what_is_no_whole_batch_is_left_to_the_core(tail: bytes) -> None:
    [*_, last] = [one for part in parts_of([fetched(0, BATCH * 6 + tail)]) for one in part]
    assert last.records == BATCH + tail
    assert not last.has_more


def test_a_small_response_is_not_looked_into() -> None:
    assert is_one_part([fetched(0, BATCH * 3)])
    assert not is_one_part([fetched(0, BATCH * 12)])


# Into a follower


class Follower:
    """A follower whose fetcher stands still: a test takes a round and gives it its response."""

    def __init__(self, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manager = cluster.brokers[FOLLOWER].replicas
        self.steps: list[int] = []
        for name in ("fetch_response_received", "fetch_part_received"):
            monkeypatch.setattr(BrokerCore, name, self._noting(getattr(BrokerCore, name)))

    def _noting(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        def noting(core: BrokerCore, leader: int, number: int, partitions: Any, now_ms: int) -> Any:
            self.steps.append(sum(sum(1 for _ in iterate_headers(one.records)) for one in partitions))
            return decide(core, leader, number, partitions, now_ms)

        return noting

    def ask(self) -> FetchRound:
        chosen = self.manager.next_round(LEADER, None)
        assert isinstance(chosen, FetchRound), chosen
        return chosen

    def end(self, number: int = 0) -> tuple[int, int]:
        partition = self.manager.core.partition(TopicPartition(TOPIC, number))
        assert partition is not None
        return partition.log_end_offset, partition.high_watermark


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KafkaCluster]:
    made = KafkaCluster(tmp_path, 2, 2)
    made.brokers[FOLLOWER].fetchers.changed = lambda _leaders: None  # type: ignore[method-assign] # no fetcher runs
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def follower(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> Follower:
    return Follower(cluster, monkeypatch)


def records_of(cluster: KafkaCluster, count: int, number: int = 0) -> bytes:
    """Return the leader's batches of one record each."""
    at = TopicPartition(TOPIC, number)
    replicas = cluster.brokers[LEADER].replicas
    for _ in range(count):
        replicas.produce(ProduceRequest(1, 1000, [ProducePartition(at, BATCH)]))
    log = replicas.logs.get(at)
    assert log is not None
    return log.read(0, count, 1_000_000, at_least_one_batch=True)


async def test_a_large_response_is_taken_in_steps_with_turns_between(cluster: KafkaCluster, follower: Follower) -> None:
    responses = [fetched(0, records_of(cluster, 12)), fetched(1, records_of(cluster, 4, 1))]
    chosen = follower.ask()
    task = asyncio.ensure_future(follower.manager.take_fetch_response(LEADER, chosen.request_id, responses))
    seen = []
    while not task.done():
        await asyncio.sleep(0)
        seen.append(follower.end())
    assert follower.steps == [5, 5, 2, 4]
    assert (5, 5) in seen, "others see what is appended, and no high watermark above it"
    assert (follower.end(0), follower.end(1)) == ((12, 7), (4, 4))
    after = follower.ask()
    assert {one.topic_partition.partition: one.fetch_offset for one in after.partitions} == {0: 12, 1: 4}


async def test_a_partition_is_not_asked_for_again_before_its_last_part(
    cluster: KafkaCluster, follower: Follower
) -> None:
    chosen = follower.ask()
    task = asyncio.ensure_future(
        follower.manager.take_fetch_response(LEADER, chosen.request_id, [fetched(0, records_of(cluster, 12))])
    )
    while follower.end()[0] < 5:  # noqa: ASYNC110 - nothing else would tell
        await asyncio.sleep(0)
    between = follower.ask()
    assert [one.topic_partition.partition for one in between.partitions] == [1]
    await task
    assert follower.end()[0] == 12


async def test_a_fetcher_that_ends_takes_its_response_to_the_end(cluster: KafkaCluster, follower: Follower) -> None:
    """Else its partitions would wait for a response for good."""
    chosen = follower.ask()
    task = asyncio.ensure_future(
        follower.manager.take_fetch_response(LEADER, chosen.request_id, [fetched(0, records_of(cluster, 12))])
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert follower.end()[0] == 12
    follower.manager.round_failed(LEADER, chosen.request_id)
    assert len(follower.ask().partitions) == 2


async def test_nothing_is_appended_behind_a_part_that_was_not_taken_whole(
    cluster: KafkaCluster, follower: Follower
) -> None:
    """Batches behind a damaged one, or one of a newer epoch, would leave a gap in the log."""
    records = bytearray(records_of(cluster, 12))
    records[len(BATCH) * 3 + 65] ^= 1  # inside the records of the fourth batch
    chosen = follower.ask()
    await follower.manager.take_fetch_response(LEADER, chosen.request_id, [fetched(0, bytes(records))])
    assert follower.end()[0] == 0, "the part with the damaged batch is refused as a response with one is"
    assert follower.steps[0] == 5


async def test_a_batch_of_a_newer_epoch_ends_the_parts(cluster: KafkaCluster, follower: Follower) -> None:
    records = bytearray(records_of(cluster, 12))
    records[len(BATCH) * 3 + 12 : len(BATCH) * 3 + 16] = (9).to_bytes(4, "big")  # outside the CRC
    chosen = follower.ask()
    await follower.manager.take_fetch_response(LEADER, chosen.request_id, [fetched(0, bytes(records))])
    assert follower.end()[0] == 3
    assert sorted(one.fetch_offset for one in follower.ask().partitions) == [0, 3]


async def test_a_late_response_changes_nothing_in_parts_either(cluster: KafkaCluster, follower: Follower) -> None:
    """Only the response to the request in flight counts (I7)."""
    chosen = follower.ask()
    follower.manager.round_failed(LEADER, chosen.request_id)
    await follower.manager.take_fetch_response(LEADER, chosen.request_id, [fetched(0, records_of(cluster, 12))])
    assert follower.end()[0] == 0
