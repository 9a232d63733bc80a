"""The records inside a batch of version 2, decoded and encoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import Buffer
from tidegauge.record_inflation import inflated
from tidegauge_broker.formats.growing_bytes import GrowingBytes
from tidegauge_broker.formats.large_batches import RECORDS_BETWEEN_PAUSES, RUN_BYTES, Pause, records_in


class StoredRecord(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: Buffer | None
    headers: Sequence[tuple[str, bytes | None]]


def decode_records(batch: Buffer, pause: Pause | None = None) -> Iterator[StoredRecord]:
    """Yield the records of one complete batch, whose CRC the caller has checked.

    Args:
        batch: the batch.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes behind the header are no records: brokers take them as they come.
    """
    whole = inflated(batch)
    try:
        for record in records_in(whole, pause):
            yield StoredRecord(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    except Exception as problem:  # any error of the codecs
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The records can't be decoded: {problem}") from problem


class Encoded(NamedTuple):
    """The bytes of records, not compressed, with what the header of their batch says about them."""

    body: memoryview
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int


def encode_all(records: Iterable[StoredRecord], base_offset: int, pause: Pause | None = None) -> Encoded:
    """Encode records one by one, so that a batch of millions takes no more memory than its bytes.

    Args:
        records: at least one; the base timestamp is the first one's.
        base_offset: of the batch.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).
    """
    body, count, base_ms, max_ms = GrowingBytes(), 0, 0, -1
    for record in records:
        if not count:
            base_ms = max_ms = record.timestamp_ms
        elif record.timestamp_ms > max_ms:
            max_ms = record.timestamp_ms
        count += 1
        _add_record(body, record, base_offset, base_ms, pause)
        if pause is not None and not count % RECORDS_BETWEEN_PAUSES:
            pause()
    return Encoded(body.content, count, base_ms, max_ms)


def encode_records(records: Sequence[StoredRecord], base_offset: int, base_timestamp_ms: int) -> bytes:
    """Return the records of a batch, uncompressed, without header (DefaultRecord.writeTo)."""
    body = bytearray()
    for record in records:
        _add_record(body, record, base_offset, base_timestamp_ms, None)
    return bytes(body)


def add_bytes(out: bytearray | GrowingBytes, data: Buffer, pause: Pause | None) -> None:
    """Append bytes; a large field piece by piece, since no other thread runs during one copy."""
    if pause is None or len(data) <= RUN_BYTES:
        out.extend(data)
        return
    view = memoryview(data)
    for at in range(0, len(view), RUN_BYTES):
        out.extend(view[at : at + RUN_BYTES])
        pause()


def _add_record(
    body: bytearray | GrowingBytes, record: StoredRecord, base_offset: int, base_timestamp_ms: int, pause: Pause | None
) -> None:
    value = record.value
    fields = bytearray(b"\x00")  # attributes, of which there are none
    _add_varint(fields, record.timestamp_ms - base_timestamp_ms)
    _add_varint(fields, record.offset - base_offset)
    _add_bytes(fields, record.key)
    _add_varint(fields, -1 if value is None else len(value))
    headers = bytearray()
    _add_varint(headers, len(record.headers))
    for name, content in record.headers:
        _add_bytes(headers, name.encode())
        _add_bytes(headers, content)
    head = bytearray()
    _add_varint(head, len(fields) + len(value or b"") + len(headers))
    head += fields
    body.extend(head)
    if value:
        add_bytes(body, value, pause)
    body.extend(headers)


def _add_bytes(out: bytearray, data: Buffer | None) -> None:
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
