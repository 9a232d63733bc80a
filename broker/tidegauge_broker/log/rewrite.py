"""Rewriting a batch without some of its records, as compaction does (MemoryRecords.filterTo).

Rules:
    1. Base offset, last offset, producer id, epoch and base sequence stay, and so do the offsets of the records: a
       producer's sequence and the log's end can still be read from the batch.
    2. The delete horizon stands in the base timestamp, marked by bit 6 of the attributes; record times are relative
       to it. Where none is set, the base timestamp is the first record's time.
    3. The largest timestamp is that of the records that are left; with the leader's clock (LogAppendTime) it stays.
    4. A batch without records keeps its header alone, uncompressed, with base timestamp -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import codec

from tidegauge.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    make_batch,
)
from tidegauge_broker.log.records import StoredRecord

_NO_TIMESTAMP = -1
_codec: Any = codec  # aiokafka ships no types
_COMPRESS: Sequence[Callable[[bytes], bytes]] = (
    bytes,
    _codec.gzip_encode,
    _codec.snappy_encode,
    _codec.lz4_encode,
    _codec.zstd_encode,
)


def rewrite_batch(header: BatchHeader, records: Sequence[StoredRecord], delete_horizon_ms: int | None) -> bytes:
    """Return the batch with only these of its records.

    Args:
        header: the batch's header.
        records: what is left, at least one.
        delete_horizon_ms: the horizon that it has or gets; None for none.
    """
    base_timestamp_ms = records[0].timestamp_ms if delete_horizon_ms is None else delete_horizon_ms
    attributes = header.attributes & ~DELETE_HORIZON_BIT
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    max_timestamp_ms = header.max_timestamp_ms
    if not attributes & LOG_APPEND_TIME_BIT:
        max_timestamp_ms = max(record.timestamp_ms for record in records)
    body = bytearray()
    for record in records:
        _add_record(body, record, header.base_offset, base_timestamp_ms)
    changed = header._replace(
        attributes=attributes,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        record_count=len(records),
    )
    return make_batch(changed, _COMPRESS[header.compression](bytes(body)))


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without any record (DefaultRecordBatch.writeEmptyHeader)."""
    attributes = header.attributes & ~(DELETE_HORIZON_BIT | COMPRESSION_MASK)
    return make_batch(header._replace(attributes=attributes, base_timestamp_ms=_NO_TIMESTAMP, record_count=0), b"")


def _add_record(body: bytearray, record: StoredRecord, base_offset: int, base_timestamp_ms: int) -> None:
    fields = bytearray(b"\x00")  # attributes, of which there are none
    _add_varint(fields, record.timestamp_ms - base_timestamp_ms)
    _add_varint(fields, record.offset - base_offset)
    _add_bytes(fields, record.key)
    _add_bytes(fields, record.value)
    _add_varint(fields, len(record.headers))
    for name, value in record.headers:
        _add_bytes(fields, name.encode())
        _add_bytes(fields, value)
    _add_varint(body, len(fields))
    body += fields


def _add_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        _add_varint(out, -1)
    else:
        _add_varint(out, len(data))
        out += data


def _add_varint(out: bytearray, value: int) -> None:
    """ZigZag, seven bits a byte, the lowest first."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
