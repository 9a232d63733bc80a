"""Whether a producer's batch may be appended: its bytes, its numbers, and each of its records.

Rules (UnifiedLog.analyzeAndValidateRecords, LogValidator), in Kafka's order, which decides
which error is reported: exactly one batch, base offset 0, max.message.bytes, CRC, consecutive offsets, no
    control records from clients, keys if the topic is compacted, times within message.timestamp.{before,after}.max.ms
    if the producer's time counts, segment.bytes.

Every record is looked at, here and nowhere else on its way: the leader's append is the one place where a record that
no client can read is kept out, so Kafka walks a batch there, compressed or not, and so does this module (ADR 0004 has
the cost). The log, followers and consumers' fetches look at headers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import (
    COMPRESSION_MASK,
    COMPRESSION_NAMES,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Buffer,
    crc_matches,
    iterate_headers,
    read_header,
)
from tidegauge.record_inflation import inflated
from tidegauge_broker.formats.large_batches import Pause, records_in
from tidegauge_broker.replica.messages import TopicRules
from tidegauge_broker.replica.record_errors import RecordErrors

NO_TIMESTAMP = -1
_ATTRIBUTES_AT = 22
_LEAST_RECORD_BYTES = 7
"""Length, attributes, two deltas, key and value that are null, and no headers: a byte each."""


def only_batch(records: Buffer) -> BatchHeader:
    """Return the header of a produce request's one batch, after its checks.

    They need nothing of the partition.

    Raises:
        TidegaugeError: INVALID_RECORD, or CORRUPT_MESSAGE if it is no complete batch.
    """
    if len(records) >= HEADER_BYTES:
        header = read_header(records)
        if header.size_bytes == len(records):
            return header
    headers = list(iterate_headers(records))
    if len(headers) != 1:
        raise TidegaugeError(ErrorCode.INVALID_RECORD, f"expected exactly one record batch, got {len(headers)}")
    return headers[0]


def check_batch(
    records: Buffer,
    header: BatchHeader,
    name: TopicPartition,
    rules: TopicRules,
    now_ms: int,
    *,
    from_coordinator: bool = False,
    whole: Buffer | None = None,
    pause: Pause | None = None,
) -> None:
    """Check a batch against the partition's rules.

    Args:
        records: the batch.
        header: its header.
        name: the partition, for errors.
        rules: its rules.
        now_ms: the time, by which the records' times are judged.
        from_coordinator: whether a coordinator of this broker appends it.
        whole: the batch without compression, if that is at hand.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).

    Raises:
        TidegaugeError: why the batch is refused; RecordsRefused: because of which records.
    """
    if header.base_offset != 0:
        raise TidegaugeError(
            ErrorCode.INVALID_RECORD, f"Base offset of the record batch must be 0, but is {header.base_offset}"
        )
    size_bytes = header.size_bytes
    check_size(header, name, rules)
    if not crc_matches(records, header):
        raise TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}) in topic partition {name}",
        )
    if header.attributes & COMPRESSION_MASK >= len(COMPRESSION_NAMES):
        raise TidegaugeError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {header.compression}"
        )
    problem = _header_problem(header, size_bytes, from_coordinator=from_coordinator)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_RECORD, problem)
    _check_records(records if whole is None else whole, header, name, rules, now_ms, pause)
    if size_bytes > rules.segment_bytes:
        raise TidegaugeError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size_bytes} bytes in append to partition {name}, which exceeds the "
            f"maximum configured segment size of {rules.segment_bytes}",
        )


def check_size(header: BatchHeader, name: TopicPartition, rules: TopicRules) -> None:
    """Raise MESSAGE_TOO_LARGE for a batch of more bytes than the topic takes."""
    if header.size_bytes > rules.max_message_bytes:
        raise TidegaugeError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {name} is {header.size_bytes} bytes which exceeds the "
            f"maximum configured value of {rules.max_message_bytes} (max.message.bytes)",
        )


def _header_problem(header: BatchHeader, size_bytes: int, *, from_coordinator: bool) -> str | None:
    if header.record_count < 1:
        return "Record batch without records"
    is_plain = not header.attributes & COMPRESSION_MASK
    if is_plain and header.record_count * _LEAST_RECORD_BYTES > size_bytes - HEADER_BYTES:
        return f"Record count {header.record_count} is more than {size_bytes - HEADER_BYTES} bytes can hold"
    if header.record_count != header.last_offset_delta + 1:
        return (
            f"Record count {header.record_count} does not match the last offset delta {header.last_offset_delta}: "
            "offsets of a producer's batch must be consecutive"
        )
    if from_coordinator:
        return None
    if header.attributes & CONTROL_BIT:
        return "Clients are not allowed to write control records"
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return f"Invalid sequence {header.base_sequence} or epoch {header.producer_epoch} of a producer's batch"
    return None


def _check_records(
    records: Buffer, header: BatchHeader, name: TopicPartition, rules: TopicRules, now_ms: int, pause: Pause | None
) -> None:
    """Offsets, keys and times.

    LogAppendTime in a producer's batch is an error only if its times are not looked at: if the topic has the leader's
    times, or the batch has none (LogValidator.validateTimestamp).
    """
    has_append_time = header.attributes & LOG_APPEND_TIME_BIT
    lies_about_time = has_append_time and (rules.log_append_time or header.max_timestamp_ms == NO_TIMESTAMP)
    whole = inflated(records) if records[_ATTRIBUTES_AT] & COMPRESSION_MASK else records
    try:
        batch = records_in(whole, pause)
        if rules.compacted or lies_about_time or (rules.limits_timestamps and not rules.log_append_time):
            stays_compressed = header.compression and (rules.codec is None or rules.codec.number == header.compression)
            shown = _partly_shown if stays_compressed else _shown
            _check_each(batch, name, rules, now_ms, shown if lies_about_time else None)
        else:
            for expected, record in enumerate(batch):
                if record.offset != expected:
                    raise _gap(record.offset, expected)
    except TidegaugeError as refusal:
        if refusal.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        raise _undecodable(name, refusal) from None
    except Exception as problem:  # any error of the codecs
        raise _undecodable(name, problem) from problem


def _undecodable(name: TopicPartition, problem: Exception) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_RECORD, f"The records in the append to {name} can't be decoded: {problem}")


def _check_each(
    batch: Iterable[Any], name: TopicPartition, rules: TopicRules, now_ms: int, shown: Callable[[Any], str] | None
) -> None:
    """All rules of records, record by record; the refusal names each record that breaks one.

    Args:
        batch: the records.
        name: the partition, for errors.
        rules: its rules.
        now_ms: the time, by which the records' times are judged.
        shown: what shows a record whose batch claims LogAppendTime; None if the batch does not, or if it may.
    """
    errors = RecordErrors()
    earliest_ms = now_ms - rules.timestamp_before_max_ms
    latest_ms = now_ms + rules.timestamp_after_max_ms
    no_key = f"Compacted topic cannot accept message without key in topic partition {name}"
    for expected, record in enumerate(batch):
        if record.offset != expected:
            raise _gap(record.offset, expected)
        if rules.compacted and record.key is None:
            errors.add(expected, no_key)
        elif (
            not rules.log_append_time
            and record.timestamp != NO_TIMESTAMP
            and not earliest_ms <= record.timestamp <= latest_ms
        ):
            errors.add_time(
                expected,
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. The timestamp "
                f"should be within [{earliest_ms}, {latest_ms}]",
            )
        elif shown is not None:
            errors.add_time(
                expected,
                f"Invalid timestamp type in message {shown(record)}. Producer should not set timestamp type to "
                "LogAppendTime.",
            )
    errors.raise_any()


def _shown(record: Any) -> str:
    """Return a record as DefaultRecord.toString shows it."""
    key_bytes, value_bytes = len(record.key or b""), len(record.value or b"")
    return (
        f"DefaultRecord(offset={record.offset}, timestamp={record.timestamp}, "
        f"key={key_bytes} bytes, value={value_bytes} bytes)"
    )


def _partly_shown(record: Any) -> str:
    """Return a record of a batch that stays compressed as PartialDefaultRecord.toString shows it.

    LogValidator skips keys and values of such batches (DefaultRecordBatch.skipKeyValueIterator); no key has size -1.
    """
    key_bytes = -1 if record.key is None else len(record.key)
    value_bytes = -1 if record.value is None else len(record.value)
    return (
        f"PartialDefaultRecord(offset={record.offset}, timestamp={record.timestamp}, "
        f"key={key_bytes} bytes, value={value_bytes} bytes)"
    )


def _gap(offset: int, expected: int) -> TidegaugeError:
    return TidegaugeError(
        ErrorCode.INVALID_RECORD,
        f"Record {offset} in the batch does not have consecutive offsets, expected offset is {expected}",
    )
