"""Rewriting a batch without some of its records, as compaction does (MemoryRecords.filterTo).

Rules:
    1. Base offset, last offset, producer id, epoch and base sequence stay, and so do the offsets of the records: a
       producer's sequence and the log's end can still be read from the batch.
    2. The base timestamp holds the delete horizon, marked by bit 6 of the attributes; record times are relative
       to it. If none is set, the base timestamp is the first record's time.
    3. The largest timestamp is the largest of the remaining records; with the leader's clock (LogAppendTime) it stays.
    4. A batch without records keeps its header alone, uncompressed, with base timestamp -1.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    make_batch,
)
from tidegauge_broker.formats.compression import compress
from tidegauge_broker.formats.records import StoredRecord, encode_records

_NO_TIMESTAMP = -1


def rewrite_batch(header: BatchHeader, records: Sequence[StoredRecord], delete_horizon_ms: int | None) -> bytes:
    """Return the batch with only these of its records.

    Args:
        header: the batch's header.
        records: the remaining records, at least one.
        delete_horizon_ms: the horizon that it has or gets; None for none.
    """
    base_timestamp_ms = records[0].timestamp_ms if delete_horizon_ms is None else delete_horizon_ms
    attributes = header.attributes & ~DELETE_HORIZON_BIT
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    max_timestamp_ms = header.max_timestamp_ms
    if not attributes & LOG_APPEND_TIME_BIT:
        max_timestamp_ms = max(record.timestamp_ms for record in records)
    body = encode_records(records, header.base_offset, base_timestamp_ms)
    changed = header._replace(
        attributes=attributes,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        record_count=len(records),
    )
    return make_batch(changed, compress(header.compression, body))


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without any record (DefaultRecordBatch.writeEmptyHeader)."""
    attributes = header.attributes & ~(DELETE_HORIZON_BIT | COMPRESSION_MASK)
    return make_batch(header._replace(attributes=attributes, base_timestamp_ms=_NO_TIMESTAMP, record_count=0), b"")
