"""The records inside a batch of version 2, decoded and encoded.

The decoder is aiokafka's; it ships no types, so ``Any`` stays in this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch  # pyright: ignore[reportMissingTypeStubs] - it has none

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import Buffer
from tidegauge.record_inflation import inflated


class StoredRecord(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def decode_records(batch: Buffer) -> Iterator[StoredRecord]:
    """Yield the records of one complete batch, whose CRC the caller has checked.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes behind the header are no records: brokers take them as they come.
    """
    whole = inflated(batch)
    try:
        decoded: Any = DefaultRecordBatch(memoryview(whole))
        for record in decoded:
            yield StoredRecord(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    except Exception as problem:  # whatever the codecs raise
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The records can't be decoded: {problem}") from problem


def encode_records(records: Sequence[StoredRecord], base_offset: int, base_timestamp_ms: int) -> bytes:
    """Return records as they stand in a batch behind its header, not compressed (DefaultRecord.writeTo)."""
    body = bytearray()
    for record in records:
        _add_record(body, record, base_offset, base_timestamp_ms)
    return bytes(body)


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
