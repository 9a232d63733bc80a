"""ListOffsets by time looks into large and compressed batches beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import LEADER, NOW_MS, TOPIC, KafkaCluster

from tidegauge.partition import TopicPartition
from tidegauge_broker.log import records, searching
from tidegauge_broker.replica.messages import OffsetLookup, ProducePartition, ProduceRequest, RecordsToDelete
from tidegauge_client.records import NewRecord, encode_batch

AT = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
@pytest.mark.parametrize(("time_ms", "found"), [(NOW_MS - 5, (15, NOW_MS - 5)), (-3, (19, NOW_MS - 1))])
async def test_a_compressed_batch_is_looked_into_in_another_thread(
    codec: str, time_ms: int, found: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 3 KB may hold 100 MiB; the search on the loop reads headers alone."""
    await _assert_found_elsewhere(codec, time_ms, found, 0, tmp_path, monkeypatch)


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
@pytest.mark.parametrize(("start", "newest_at"), [(12, 15), (16, 17)])
async def test_a_batch_that_begins_below_the_log_start_is_looked_into_in_another_thread(
    codec: str, start: int, newest_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After DeleteRecords its header no longer says which time is the largest of its records (ListOffsets -3)."""
    times_ms = [NOW_MS - 20] * 20
    times_ms[newest_at], times_ms[3] = NOW_MS - 3, NOW_MS - 1
    await _assert_found_elsewhere(codec, -3, (newest_at, NOW_MS - 3), start, tmp_path, monkeypatch, times_ms)


async def _assert_found_elsewhere(
    codec: str,
    time_ms: int,
    found: tuple[int, int],
    log_start: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times_ms: Sequence[int] = range(NOW_MS - 20, NOW_MS),
) -> None:
    cluster = KafkaCluster(tmp_path, 1, 1)
    await cluster.start()
    broker = cluster.brokers[LEADER]
    batch = encode_batch([NewRecord(value=b"v", timestamp_ms=one) for one in times_ms], compression=codec)
    await broker.replicas.produce(ProduceRequest(1, 1000, [ProducePartition(AT, batch)]))
    if log_start:
        await broker.replicas.delete_records([RecordsToDelete(AT, log_start)], 1000)
    threads: list[int] = []

    def noted(decode: Any) -> Any:
        def decoding(*arguments: Any) -> Any:
            threads.append(threading.get_ident())
            return decode(*arguments)

        return decoding

    for module in (records, searching):
        if hasattr(module, "decode_records"):
            monkeypatch.setattr(module, "decode_records", noted(module.decode_records))
    service = broker.service()
    result, timestamp_ms = await service.list_offset(OffsetLookup(AT, time_ms))
    service.records_pool.close()
    assert (result.offset, timestamp_ms) == found
    assert threads
    assert threading.get_ident() not in threads
    await cluster.close()
