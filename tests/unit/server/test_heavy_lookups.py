"""ListOffsets by time looks into large and compressed batches beside the event loop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import LEADER, NOW_MS, TOPIC, KafkaCluster

from tidegauge.partition import TopicPartition
from tidegauge_broker.log import records
from tidegauge_broker.replica.messages import OffsetLookup, ProducePartition, ProduceRequest
from tidegauge_client.records import NewRecord, encode_batch

AT = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
@pytest.mark.parametrize(("time_ms", "found"), [(NOW_MS - 5, (15, NOW_MS - 5)), (-3, (19, NOW_MS - 1))])
async def test_a_compressed_batch_is_looked_into_in_another_thread(
    codec: str, time_ms: int, found: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 3 KB may hold 100 MiB; the search on the loop reads headers alone."""
    cluster = KafkaCluster(tmp_path, 1, 1)
    await cluster.start()
    broker = cluster.brokers[LEADER]
    batch = encode_batch(
        [NewRecord(value=b"v", timestamp_ms=NOW_MS - 20 + number) for number in range(20)], compression=codec
    )
    await broker.replicas.produce(ProduceRequest(1, 1000, [ProducePartition(AT, batch)]))
    threads: list[int] = []
    decode: Any = records.decode_records  # type: ignore[attr-defined]

    def noting(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return decode(*arguments)

    monkeypatch.setattr(records, "decode_records", noting)
    service = broker.service()
    result, timestamp_ms = await service.list_offset(OffsetLookup(AT, time_ms))
    service.records_pool.close()
    assert (result.offset, timestamp_ms) == found
    assert threads
    assert threading.get_ident() not in threads
    await cluster.close()
