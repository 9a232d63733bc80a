"""Whether a producer's batch may be appended: its bytes, its numbers, and where a topic asks for it its records.

Rules (kafka-behaviour 2.1; UnifiedLog.analyzeAndValidateRecords, LogValidator), in Kafka's order, which decides
which error is told: exactly one batch; base offset 0; max.message.bytes; CRC; consecutive offsets; neither control
nor transactional; keys where the topic is compacted; times within message.timestamp.{before,after}.max.ms where the
producer's time counts; segment.bytes.

Records are decoded only where a rule of the topic is about records: it is compacted, or limits times. So the usual
append touches the header alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import (
    COMPRESSION_NAMES,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    crc_matches,
    iterate_headers,
)
from tidegauge.record_inflation import check_inflated_size
from tidegauge_broker.replica.messages import TopicRules

NO_TIMESTAMP = -1
_LEAST_RECORD_BYTES = 7
"""Length, attributes, two deltas, key and value that are null, and no headers: a byte each."""


def only_batch(records: bytes) -> BatchHeader:
    """The header of a produce request's one batch; checked before anything is asked of the partition.

    Raises:
        TidegaugeError: INVALID_RECORD, or CORRUPT_MESSAGE where it is no whole batch.
    """
    headers = list(iterate_headers(records))
    if len(headers) != 1:
        raise TidegaugeError(ErrorCode.INVALID_RECORD, f"expected exactly one record batch, got {len(headers)}")
    return headers[0]


def check_batch(records: bytes, header: BatchHeader, name: TopicPartition, rules: TopicRules, now_ms: int) -> None:
    """Check a batch against the partition's rules.

    Raises:
        TidegaugeError: why the batch is refused.
    """
    if header.base_offset != 0:
        raise TidegaugeError(
            ErrorCode.INVALID_RECORD, f"Base offset of the record batch must be 0, but is {header.base_offset}"
        )
    if header.size_bytes > rules.max_message_bytes:
        raise TidegaugeError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {name} is {header.size_bytes} bytes which exceeds the "
            f"maximum configured value of {rules.max_message_bytes} (max.message.bytes)",
        )
    if not crc_matches(records, header):
        raise TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}) in topic partition {name}",
        )
    if header.compression >= len(COMPRESSION_NAMES):
        raise TidegaugeError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {header.compression}"
        )
    problem = _header_problem(header)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_RECORD, problem)
    _check_records(records, header, name, rules, now_ms)
    if header.size_bytes > rules.segment_bytes:
        raise TidegaugeError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {header.size_bytes} bytes in append to partition {name}, which exceeds the "
            f"maximum configured segment size of {rules.segment_bytes}",
        )


def _header_problem(header: BatchHeader) -> str | None:
    if header.record_count < 1:
        return "Record batch without records"
    if header.compression == 0 and header.record_count * _LEAST_RECORD_BYTES > header.size_bytes - HEADER_BYTES:
        return f"Record count {header.record_count} is more than {header.size_bytes - HEADER_BYTES} bytes can hold"
    if header.record_count != header.last_offset_delta + 1:
        return (
            f"Record count {header.record_count} does not match the last offset delta {header.last_offset_delta}: "
            "offsets of a producer's batch must be consecutive"
        )
    if header.is_control or header.is_transactional:
        return "Control and transactional batches are not accepted from clients"
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return f"Invalid sequence {header.base_sequence} or epoch {header.producer_epoch} of a producer's batch"
    return None


def _check_records(records: bytes, header: BatchHeader, name: TopicPartition, rules: TopicRules, now_ms: int) -> None:
    """Keys and times."""
    earliest_ms = now_ms - rules.timestamp_before_max_ms
    latest_ms = now_ms + rules.timestamp_after_max_ms
    if not rules.log_append_time and header.attributes & LOG_APPEND_TIME_BIT:
        raise TidegaugeError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Invalid timestamp type in the append to {name}: only the leader sets LogAppendTime",
        )
    looks_at_times = not rules.log_append_time and rules.limits_timestamps
    if not rules.compacted and not looks_at_times:
        return
    for offset, timestamp_ms, has_key in _decoded(records, name):
        if rules.compacted and not has_key:
            raise TidegaugeError(
                ErrorCode.INVALID_RECORD, f"Compacted topic cannot accept message without key in topic partition {name}"
            )
        if looks_at_times and timestamp_ms != NO_TIMESTAMP and not earliest_ms <= timestamp_ms <= latest_ms:
            raise TidegaugeError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamp {timestamp_ms} of message with offset {offset} is out of range. The timestamp should be "
                f"within [{earliest_ms}, {latest_ms}]",
            )


def _decoded(records: bytes, name: TopicPartition) -> Iterator[tuple[int, int, bool]]:
    """Offset, time and presence of a key of each record.

    Raises:
        TidegaugeError: INVALID_RECORD, the records can't be decoded though the CRC is right; or as
            ``check_inflated_size``.
    """
    check_inflated_size(records)
    try:
        batch: Any = DefaultRecordBatch(bytearray(records))  # the codec ships no types
        found = [(record.offset, record.timestamp, record.key is not None) for record in batch]
    except Exception as problem:  # whatever the codecs raise
        raise TidegaugeError(
            ErrorCode.INVALID_RECORD, f"The records in the append to {name} can't be decoded: {problem}"
        ) from problem
    yield from found
