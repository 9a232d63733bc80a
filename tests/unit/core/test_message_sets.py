"""Message sets of old producers at a leader, with the topic's codec, and with sizes that change."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from core_harness import AT, Cluster, make_batch

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import BatchHeader, read_header
from tidegauge_broker.formats.compression import Codec
from tidegauge_broker.formats.recompression import recompress
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    CoreSettings,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    TopicRules,
)

GZIP = 1
TIME_MS = 1_700_000_000_000


def message_set(*values: bytes | None, magic: int = 1, codec: int = 0, key: bytes | None = b"k") -> bytes:
    builder: Any = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for index, value in enumerate(values):
        builder.append(index, timestamp=TIME_MS, key=key, value=value)
    return bytes(builder.build())


def alone(**rules: Any) -> Cluster:
    cluster = Cluster((1,), rules=TopicRules(**rules), settings=CoreSettings())
    cluster.settle()
    return cluster


def send(cluster: Cluster, records: bytes, *, acks: int = 1, is_message_set: bool = True) -> ProduceResult:
    broker = cluster.brokers[1]
    item = ProducePartition(AT, records, is_message_set=is_message_set)
    token = object()
    broker.execute(broker.core.produce(ProduceRequest(acks, 1000, [item]), token, cluster.now_ms))
    [result] = broker.produced[token]
    return result


def stored(cluster: Cluster) -> list[BatchHeader]:
    return [read_header(data) for _, _, data in cluster.content(1)]


def test_a_message_set_becomes_one_batch_at_the_logs_end() -> None:
    cluster = alone()
    assert send(cluster, message_set(b"a", b"b")).base_offset == 0
    result = send(cluster, message_set(b"c", None, magic=0))
    assert (result.error, result.base_offset, result.converted_count) == (ErrorCode.NONE, 2, 2)
    assert [header.record_count for header in stored(cluster)] == [2, 2]
    assert cluster.ends(1)[0][0] == 4


@pytest.mark.parametrize("acks", [ACKS_ALL, 1])
def test_an_empty_set_is_no_error(acks: int) -> None:
    """UnifiedLog.append returns if nothing is valid; the base offset is -1."""
    cluster = alone()
    result = send(cluster, b"", acks=acks)
    assert (result.error, result.base_offset, result.log_start_offset) == (ErrorCode.NONE, -1, 0)
    assert not stored(cluster)


def test_min_insync_replicas_come_before_the_records() -> None:
    """ReplicaManager.appendRecords: the partition is asked first."""
    cluster = Cluster(rules=TopicRules(min_insync_replicas=2))
    cluster.settle()
    cluster.impose(1, [1])
    cluster.deliver()
    assert send(cluster, b"\0" * 40, acks=ACKS_ALL).error is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("rules", "records", "error"),
    [
        ({"compacted": True}, message_set(b"v", key=None), ErrorCode.INVALID_RECORD),
        ({"max_message_bytes": 90}, message_set(b"x" * 90), ErrorCode.MESSAGE_TOO_LARGE),
        ({"max_message_bytes": 90}, message_set(*[b"x" * 9] * 9), ErrorCode.MESSAGE_TOO_LARGE),
        (
            {"timestamp_before_max_ms": 1000, "timestamp_after_max_ms": 1},
            message_set(b"v"),
            ErrorCode.INVALID_TIMESTAMP,
        ),
    ],
)
def test_the_topics_rules_hold_for_what_is_converted(rules: dict[str, Any], records: bytes, error: ErrorCode) -> None:
    """Messages of 41 bytes are each below a limit of 90, their batch is not."""
    assert send(alone(**rules), records).error is error


def test_format_0_has_no_time_that_could_be_out_of_range() -> None:
    cluster = alone(timestamp_before_max_ms=1000, timestamp_after_max_ms=1)
    assert send(cluster, message_set(b"v", magic=0)).error is ErrorCode.NONE


def test_the_topics_codec_is_that_of_the_stored_batch() -> None:
    """LogValidator: batches of another codec are built again, and counted as converted."""
    cluster = alone(codec=Codec(GZIP, 9))
    assert send(cluster, make_batch("a", "b"), is_message_set=False).converted_count == 2
    assert send(cluster, message_set(b"c", codec=2)).converted_count == 1
    same = message_set(b"d", codec=GZIP)
    assert send(cluster, same).converted_count == 1
    assert [header.compression for header in stored(cluster)] == [GZIP] * 3
    assert cluster.ends(1)[0][0] == 4


def test_a_batch_that_grows_beyond_the_limit_is_refused() -> None:
    """UnifiedLog.append checks the size again if it may have changed."""
    plain = make_batch("x" * 2000)
    recompressed = recompress(plain, read_header(plain), Codec(GZIP))
    assert recompressed is not None
    packed = recompressed.batch()
    cluster = alone(codec=Codec(0), max_message_bytes=500)
    assert len(packed) < 500
    assert send(cluster, packed, is_message_set=False).error is ErrorCode.MESSAGE_TOO_LARGE
    assert not stored(cluster)
