"""The records inside a batch in plain Python, for platforms without a build of aiokafka's compiled codec.

Layout of a record (``org.apache.kafka.common.record.DefaultRecord``): length, attributes, timestamp delta, offset
delta, key, value, headers; lengths and deltas are zigzag varints. Batches are read and written without compression, or
with gzip (``tidegauge.compressors``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidegauge.checksum import Buffer
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import (
    COMPRESSION_MASK,
    COMPRESSION_NAMES,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    make_batch,
    read_header,
)

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_MOST_VARINT_BYTES = 10


class PlainRecord(NamedTuple):
    """A record as it was read; ``timestamp`` is in ms since 1970."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class RecordMetadata(NamedTuple):
    """A record as it was written: its offset in the batch, its size in bytes and its timestamp."""

    offset: int
    size: int
    timestamp: int


class PlainRecordBatch:
    """The records of one batch; the CRC is not looked at.

    Args:
        buffer: one complete batch.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._header = read_header(buffer)
        self._records = _uncompressed(self._header.compression, bytes(memoryview(buffer)[HEADER_BYTES:]))

    def __iter__(self) -> Iterator[PlainRecord]:
        """Read one record after the other.

        Raises:
            ValueError: a record is malformed, or there are bytes behind the last one.
        """
        header, at = self._header, 0
        for _ in range(header.record_count):
            record, at = _read(self._records, at, header)
            yield record
        if at != len(self._records):
            raise ValueError(f"{len(self._records) - at} bytes follow the records of the batch")


def _uncompressed(number: int, records: bytes) -> bytes:
    if number == 0:
        return records
    if COMPRESSION_NAMES[number : number + 1] == ("gzip",):
        return zlib.decompress(records, _GZIP_WINDOW)
    raise _unsupported(number)


def _unsupported(number: int) -> TidegaugeError:
    return TidegaugeError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"this Python has no compiled compressor for codec {number}"
    )


def _read(records: bytes, at: int, header: BatchHeader) -> tuple[PlainRecord, int]:
    size, at = _varint(records, at)
    end = at + size
    if size < 0 or end > len(records):
        raise ValueError(f"a record of {size} bytes ends behind its batch")
    time_delta, at = _varint(records, at + 1)
    offset_delta, at = _varint(records, at)
    key, at = _sized(records, at)
    value, at = _sized(records, at)
    count, at = _varint(records, at)
    if count < 0:
        raise ValueError(f"a record of {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _sized(records, at)
        if name is None:
            raise ValueError("the name of a header is null")
        content, at = _sized(records, at)
        headers.append((name.decode("utf-8"), content))
    if at != end:
        raise ValueError(f"a record of {size} bytes whose fields take {size + at - end}")
    kind = 1 if header.attributes & LOG_APPEND_TIME_BIT else 0
    time_ms = header.max_timestamp_ms if kind else header.base_timestamp_ms + time_delta
    return PlainRecord(header.base_offset + offset_delta, time_ms, kind, key, value, headers), at


def _sized(records: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(records, at)
    if size < 0:
        return None, at
    if at + size > len(records):
        raise ValueError(f"a field of {size} bytes ends behind its batch")
    return records[at : at + size], at + size


def _varint(records: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    for position in range(at, min(at + _MOST_VARINT_BYTES, len(records))):
        byte = records[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position + 1
        shift += 7
    raise ValueError("a number that does not end")


class PlainRecordBatchBuilder:
    """Collects records, then builds the bytes of one batch.

    Args:
        magic: of the format; 2.
        compression_type: number of the codec.
        is_transactional: whether it belongs to a transaction of the producer.
        producer_id: -1 without; likewise ``producer_epoch`` and ``base_sequence``.
        producer_epoch: see ``producer_id``.
        base_sequence: sequence of the first record.
        batch_size: maximum size in bytes; a first record always fits.
    """

    def __init__(
        self,
        *,
        magic: int,
        compression_type: int,
        is_transactional: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        batch_size: int,
    ) -> None:
        if COMPRESSION_NAMES[compression_type] not in {"none", "gzip"}:
            raise _unsupported(compression_type)
        self._magic = magic
        self._attributes = compression_type | (TRANSACTIONAL_BIT if is_transactional else 0)
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._max_bytes = batch_size
        self._records = bytearray()
        self._count = 0
        self._last_offset = 0
        self._first_time_ms = self._last_time_ms = 0

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer's id, its epoch, and the sequence of the first record."""
        self._producer = (producer_id, producer_epoch, base_sequence)

    def size(self) -> int:
        """Return the bytes of the batch so far, header included, before compression."""
        return HEADER_BYTES + len(self._records)

    def append(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> RecordMetadata | None:
        """Add a record; None if it does not fit. The first always fits, however large it is."""
        first_time_ms = self._first_time_ms if self._count else timestamp
        body = bytearray(b"\0")  # the attributes, of which none is in use
        _write_varint(body, timestamp - first_time_ms)
        _write_varint(body, offset)
        _write_sized(body, key)
        _write_sized(body, value)
        _write_varint(body, len(headers))
        for name, content in headers:
            _write_sized(body, name.encode("utf-8"))
            _write_sized(body, content)
        length = bytearray()
        _write_varint(length, len(body))
        size = len(length) + len(body)
        if self._count and self.size() + size > self._max_bytes:
            return None
        self._first_time_ms = first_time_ms
        self._last_time_ms = max(self._last_time_ms, timestamp) if self._count else timestamp
        self._records += length + body
        self._count += 1
        self._last_offset = offset
        return RecordMetadata(offset, size, timestamp)

    def build(self) -> bytes:
        """Return the batch, compressed if that makes it smaller."""
        records, attributes = bytes(self._records), self._attributes
        if attributes & COMPRESSION_MASK:
            stream = zlib.compressobj(wbits=_GZIP_WINDOW)
            smaller = stream.compress(records) + stream.flush()
            if len(smaller) < len(records):
                records = smaller
            else:
                attributes &= ~COMPRESSION_MASK
        times = (self._first_time_ms, self._last_time_ms)
        header = BatchHeader(
            0, 0, -1, self._magic, 0, attributes, self._last_offset, *times, *self._producer, self._count, 0
        )
        return make_batch(header, records)


def _write_sized(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)  # the zigzag form of -1
        return
    _write_varint(out, len(content))
    out += content


def _write_varint(out: bytearray, value: int) -> None:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
