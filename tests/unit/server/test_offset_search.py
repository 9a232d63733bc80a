"""A search by time leaves the event loop to others, walks once, and begins again in a log whose files have changed.

Counted are headers between two turns of the loop and walks, never a duration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_cluster import LEADER, NOW_MS, TOPIC, KafkaCluster

from tidegauge.partition import TopicPartition
from tidegauge_broker.log import searching
from tidegauge_broker.log.records import BatchSearch, KnownResults
from tidegauge_broker.log.searching import first_at_or_after
from tidegauge_broker.log.segment import BatchSpot, LogSegment
from tidegauge_broker.replica.messages import OffsetLookup, ProducePartition, ProduceRequest, RecordsToDelete
from tidegauge_broker.server.replication import offset_search
from tidegauge_broker.server.replication.offset_search import OffsetSearch
from tidegauge_client.records import NewRecord, encode_batch

AT = TopicPartition(TOPIC, 0)
ZSTD = 4


class Segment:
    """A segment whose headers all claim a time that only the last batch's record has; counts the walked ones."""

    base_offset = 0
    largest_timestamp = (9, 0)

    def __init__(self, count: int, *, compressed: bool = True, size_bytes: int = 100) -> None:
        self.count = count
        self.walked = 0
        self._attributes = ZSTD if compressed else 0
        self._size_bytes = size_bytes

    def from_time(self, timestamp_ms: int, from_offset: int) -> Iterator[BatchSpot]:
        del timestamp_ms, from_offset
        for number in range(self.count):
            self.walked += 1
            yield BatchSpot(number, self._size_bytes, number, number, 9)

    def batch_bytes(self, spot: BatchSpot) -> bytes:
        head = bytearray(self._size_bytes)
        head[0:8] = spot.base_offset.to_bytes(8, "big")
        head[22] = self._attributes
        return bytes(head)


def log() -> Any:
    return SimpleNamespace(layout_version=1, log_start_offset=0, is_closed=False)


def search(segment: Any, of_log: Any) -> OffsetSearch:
    finish: Any = lambda found: (found, 0)  # noqa: E731 - in the place of a response
    return OffsetSearch(of_log, first_at_or_after([segment], 9, 0, 10_000), finish)


def found_in(question: BatchSearch, last: int) -> tuple[int, int] | None:
    offset = int.from_bytes(question[1][:8], "big")
    return (offset, 9) if offset == last else None


async def test_a_search_goes_on_behind_each_large_batch() -> None:
    """It began again behind each, and so walked through all before it once more."""
    segment, asked = Segment(50), []

    async def search_elsewhere(question: BatchSearch) -> object:
        asked.append(question)
        return found_in(question, 49)

    result = await search(segment, log()).carry_out(KnownResults(), search_elsewhere)
    assert result == ((49, 9), 0)
    assert len(asked) == 50
    assert segment.walked == 50


@pytest.mark.parametrize("change", ["layout_version", "log_start_offset", "is_closed"])
async def test_a_search_in_a_log_that_changes_counts_no_longer_and_large_batches_stay_known(change: str) -> None:
    """The searched files are truncated, deleted or replaced; the next search is spared the work beside the loop."""
    segment, of_log, looked, asked = Segment(3), log(), KnownResults(), []

    async def search_elsewhere(question: BatchSearch) -> object:
        asked.append(question)
        if len(asked) == 2:
            setattr(of_log, change, 7)
        return found_in(question, 2)

    assert await search(segment, of_log).carry_out(looked, search_elsewhere) is None
    assert await search(segment, of_log).carry_out(looked, search_elsewhere) == ((2, 9), 0)
    assert len(asked) == 3


async def test_what_is_known_of_a_large_batch_keeps_no_records_in_memory() -> None:
    looked, question = KnownResults(), (found_in, bytes(1_000_000), 9, 0)
    looked.note(question, (1, 9))
    assert looked.has(question)
    assert sum(len(part) for key in looked._found for part in key if isinstance(part, bytes)) < 100


async def test_small_batches_that_claim_a_time_in_vain_leave_the_loop_its_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer writes the headers; looking into a small batch on the loop costs little, into thousands much."""
    monkeypatch.setattr(offset_search, "BYTES_PER_TURN", 300)
    monkeypatch.setattr(offset_search, "search_here", lambda *question: found_in(question, 99))

    async def search_elsewhere(_: BatchSearch) -> object:
        raise AssertionError("they are small")

    segment = Segment(100, compressed=False)
    task = asyncio.ensure_future(search(segment, log()).carry_out(KnownResults(), search_elsewhere))
    while not task.done():
        before = segment.walked
        await asyncio.sleep(0)
        assert segment.walked - before <= 4
    assert await task == ((99, 9), 0)


@pytest.mark.parametrize(("time_ms", "found"), [(-3, 299), (NOW_MS, -1)])
async def test_headers_are_walked_over_in_turns(
    time_ms: int, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment may hold a million batches; after DeleteRecords inside it, its index does not say the largest time."""
    monkeypatch.setattr(searching, "BATCHES_PER_TURN", 50)
    cluster = KafkaCluster(tmp_path, 1, 1)
    await cluster.start()
    broker = cluster.brokers[LEADER]
    for number in range(300):
        batch = encode_batch([NewRecord(value=b"v", timestamp_ms=NOW_MS - 1000 + number)])
        await broker.replicas.produce(ProduceRequest(1, 1000, [ProducePartition(AT, batch)]))
    await broker.replicas.delete_records([RecordsToDelete(AT, 1)], 1000)
    walked = [0]
    from_time = LogSegment.from_time

    def counting(segment: LogSegment, *arguments: int) -> Iterator[BatchSpot]:
        for spot in from_time(segment, *arguments):
            walked[0] += 1
            yield spot

    monkeypatch.setattr(LogSegment, "from_time", counting)
    task = asyncio.ensure_future(broker.service().list_offset(OffsetLookup(AT, time_ms)))
    while not task.done():
        before = walked[0]
        await asyncio.sleep(0)
        assert walked[0] - before <= 60
    result, _ = await task
    assert result.offset == found
    assert walked[0] >= (300 if time_ms == -3 else 0)
    await cluster.close()
