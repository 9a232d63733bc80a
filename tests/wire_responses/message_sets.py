"""Facts about records: message formats before record batches, codecs, times, sizes, and how each version reads them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import codec
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from tests.wire_responses.batches import TIME_MS

from tidegauge.record_batch import make_batch, read_header

APPEND_TIME = 0x08
_HEADER_BYTES = 61
_LONG = 600
_codec: Any = codec
_COMPRESS: Mapping[int, Any] = {
    1: lambda data, _: zlib.compress(data, 6, 31),
    2: lambda data, _: _codec.snappy_encode(data),
    3: lambda data, magic: _lz4(data, magic),  # noqa: PLW0108 - it is defined below
    4: lambda data, _: _codec.zstd_encode(data),
}
KEYED = ((b"k", b"v"), (None, b"no key"), (b"tombstone", None), (b"", b""))


def _lz4(data: bytes, magic: int) -> bytes:
    """Return a frame; of format 0 with the checksum that Kafka 0.8 wrote."""
    frame = bytearray(_codec.lz4_encode(data))
    if magic == 0:
        frame[6] ^= 0xFF
    return bytes(frame)


def one(
    value: bytes | None,
    magic: int,
    *,
    key: bytes | None = None,
    offset: int = 0,
    attributes: int = 0,
    timestamp_ms: int = TIME_MS,
) -> bytes:
    """Return one message of format 0 or 1."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def several(magic: int, pairs: Sequence[tuple[bytes | None, bytes | None]] = KEYED, **more: Any) -> bytes:
    """Return a message set with times that do not rise."""
    times = (0, 7, 3, 5)
    return b"".join(
        one(value, magic, key=key, offset=index, timestamp_ms=TIME_MS + times[index % 4], **more)
        for index, (key, value) in enumerate(pairs)
    )


def wrapped(number: int, magic: int, inner: bytes | None = None, *, offset: int = 3, **more: Any) -> bytes:
    """Return a wrapper of messages."""
    value = _COMPRESS[number](several(magic) if inner is None else inner, magic)
    attributes = more.pop("attributes", 0) | number
    return one(value, magic, offset=offset, attributes=attributes, **{"timestamp_ms": TIME_MS + 7} | more)


def v2(number: int = 0, *, headers: bool = True) -> bytes:
    """Return a batch with headers, compressed or not; the same bytes each time."""
    kind = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "batch_size": 1 << 20}
    builder: Any = DefaultRecordBatchBuilder(magic=2, compression_type=0, **kind)
    for index, (key, value) in enumerate(KEYED):
        builder.append(index, TIME_MS + index, key, value, [("h", b"1"), ("n", None)] if headers else [])
    plain = bytes(builder.build())
    return plain if number == 0 else make_batch(read_header(plain)._replace(attributes=number), _records(plain, number))


def _records(plain: bytes, number: int) -> bytes:
    return bytes(_COMPRESS[number](plain[_HEADER_BYTES:], 2))


def read(records: bytes | None) -> Any:
    """Return a record set's content, message by message and batch by batch."""
    if records is None:
        return None
    found: list[Any] = []
    at = 0
    while len(records) - at >= 12:
        offset, size = struct.unpack_from(">qi", records, at)
        entry = bytes(records[at : at + 12 + size])
        if offset == -1 or len(entry) < 12 + size:
            found.append(("filled", offset, size, len(entry), sum(entry[12:])))
        elif entry[16] == 2:
            found.append(_batch(entry))
        else:
            found.append(_message(entry))
        at += len(entry)
    return len(records) - at, found


def _batch(entry: bytes) -> Any:
    _, _, epoch, _, _, attributes, last, first_ms, max_ms, producer, *_, count = struct.unpack_from(
        ">qiibIhiqqqhii", entry
    )
    decoded: Any = DefaultRecordBatch(bytearray(entry))
    records = [(r.offset, r.timestamp - first_ms, _short(r.key), _short(r.value), list(r.headers)) for r in decoded]
    times = (_time(first_ms), "" if attributes & APPEND_TIME else max_ms - first_ms)
    shown = "" if attributes & APPEND_TIME else _bytes(entry[_HEADER_BYTES:], attributes & 7)
    return (
        "batch",
        epoch,
        attributes,
        last,
        times,
        producer >= 0,
        count,
        [] if attributes & APPEND_TIME else records,
        shown,
    )


def _bytes(records: bytes, number: int) -> str:
    """Return the bytes if the codec's library is shared: zlib, not snappy or LZ4."""
    return _short(records.hex()) if number <= 1 else ""


def _short(value: Any) -> Any:
    """Return a value, or what stands for a long one."""
    if value is None or len(value) <= _LONG:
        return value
    data = value if isinstance(value, bytes) else value.encode()
    return ("long", len(value), zlib.crc32(data))


def _time(time_ms: int) -> Any:
    return time_ms - TIME_MS if abs(time_ms - TIME_MS) < 1_000_000 else ("none" if time_ms == -1 else "now")


def _message(entry: bytes) -> Any:
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbb", entry)
    is_right = crc == zlib.crc32(entry[16:])
    at, time_ms = 18, "none"
    if magic:
        time_ms, at = _time(struct.unpack_from(">q", entry, 18)[0]), 26
    parts = []
    for _ in range(2):
        length = struct.unpack_from(">i", entry, at)[0]
        at += 4
        parts.append(None if length < 0 else entry[at : at + length])
        at += max(0, length)
    number = attributes & 7
    if number:
        frame = bytearray(parts[1] or b"")
        lz4_header = frame[:7].hex() if number == 3 else ""
        if number == 3 and magic == 0:
            frame[6] = 0x82
        decode = {1: _codec.gzip_decode, 2: _codec.snappy_decode, 3: _codec.lz4_decode}[number]
        parts[1] = read(bytes(decode(bytes(frame)))), lz4_header or _bytes(bytes(frame), number)
    else:
        parts = [_short(part) for part in parts]
    return (offset, magic, attributes, time_ms, is_right, parts, len(entry) - at)
