"""Message sets of producers before record batches, as a leader stores them (LogValidator, UnifiedLog)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.formats.record_sets import GZIP, TIME_MS, Pair, built, expected, of_aiokafka, one, pairs

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import LOG_APPEND_TIME_BIT, crc_matches, read_header
from tidegauge_broker.formats.compression import Codec
from tidegauge_broker.formats.messages import wrap, write_message
from tidegauge_broker.formats.up_conversion import up_convert

AT = TopicPartition("old", 0)
LIMIT_BYTES = 1 << 20


def converted(records: bytes, target: Codec | None = None, *, log_append_time: bool = False) -> bytes:
    conversion = up_convert(records, AT, LIMIT_BYTES, target, log_append_time=log_append_time)
    assert conversion is not None
    assert conversion.record_count == read_header(conversion.batch).record_count
    return conversion.batch


def refusal(records: bytes, *, log_append_time: bool = False, limit_bytes: int = LIMIT_BYTES) -> ErrorCode:
    with pytest.raises(TidegaugeError) as refused:
        up_convert(records, AT, limit_bytes, None, log_append_time=log_append_time)
    return refused.value.code


@given(
    kind=of_aiokafka,
    target=st.none() | st.sampled_from([Codec(0), Codec(1, 3), Codec(2), Codec(3, 12), Codec(4, 1)]),
    records=pairs,
)
def test_aiokafka_reads_the_batch_of_a_set(
    kind: tuple[int, int], target: Codec | None, records: Sequence[Pair]
) -> None:
    """Rule 6: one batch, of the topic's codec or the wrapper's, with the times and without a producer."""
    magic, codec = kind
    batch = converted(built(magic, codec, records), target)
    header = read_header(batch)
    assert crc_matches(batch, header)
    assert header.compression == (codec if target is None else target.number)
    assert (header.base_offset, header.last_offset_delta, header.producer_id) == (0, len(records) - 1, -1)
    assert header.max_timestamp_ms == (TIME_MS + len(records) - 1 if magic else -1)
    decoded: Any = DefaultRecordBatch(bytearray(batch))
    found = [(record.offset, record.timestamp, record.key, record.value) for record in decoded]
    assert found == expected(magic, records)


def test_the_producers_offsets_do_not_count() -> None:
    records = b"".join(write_message(offset, 1, TIME_MS, None, b"v") for offset in (7, 7, 3))
    assert read_header(converted(records)).last_offset_delta == 2


@pytest.mark.parametrize("records", [b"", one(1)[:-1]])
def test_nothing_whole_is_nothing_to_append(records: bytes) -> None:
    """Rule 2: Kafka appends nothing, and responds without an error."""
    assert up_convert(records, AT, LIMIT_BYTES, None, log_append_time=False) is None


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (damaged(one(1)), ErrorCode.CORRUPT_MESSAGE),
        (damaged(wrap(one(1), GZIP, 1, 0, TIME_MS)), ErrorCode.CORRUPT_MESSAGE),
        (wrap(damaged(one(1)), GZIP, 1, 0, TIME_MS), ErrorCode.CORRUPT_MESSAGE),
        (wrap(one(1), GZIP, 1, 0, TIME_MS) * 2, ErrorCode.INVALID_RECORD),
        (one(1) + wrap(one(1), GZIP, 1, 0, TIME_MS), ErrorCode.INVALID_RECORD),
        (wrap(one(0), GZIP, 1, 0, TIME_MS), ErrorCode.INVALID_RECORD),
        (wrap(one(2), GZIP, 1, 0, TIME_MS), ErrorCode.INVALID_RECORD),
    ],
)
def test_what_kafka_refuses_is_refused(records: bytes, error: ErrorCode) -> None:
    """Rules 1, 3 and 4."""
    assert refusal(records) is error


def test_each_message_is_held_to_the_limit_as_it_came() -> None:
    """Rule 1; the batch is, too, which the leader sees to."""
    records = one(1, b"x" * 50)
    assert refusal(records, limit_bytes=len(records) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert up_convert(records * 3, AT, len(records), None, log_append_time=False) is not None


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize(
    ("time_ms", "topic_has_append_time", "is_refused"),
    [(TIME_MS, False, False), (TIME_MS, True, True), (-1, False, True), (-1, True, True)],
)
def test_a_brokers_time_in_a_producers_message(
    is_wrapped: bool, time_ms: int, topic_has_append_time: bool, is_refused: bool
) -> None:
    """Rule 5 (LogValidator.validateTimestamp): where the producer's time counts, only its range is looked at."""
    records = write_message(0, 1, time_ms, None, b"v", LOG_APPEND_TIME_BIT)
    if is_wrapped:
        inner = write_message(0, 1, time_ms, None, b"v")
        records = wrap(inner, GZIP, 1, 0, time_ms, LOG_APPEND_TIME_BIT)
    if is_refused:
        assert refusal(records, log_append_time=topic_has_append_time) is ErrorCode.INVALID_TIMESTAMP
    else:
        assert not read_header(converted(records)).attributes & LOG_APPEND_TIME_BIT
