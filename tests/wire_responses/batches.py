"""Record batches of version 2 with whatever their headers are to say."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from crc32c import crc32c

TIME_MS = 1_700_000_000_000
TRANSACTIONAL = 0x10
CONTROL = 0x20
ZSTD = 4


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _record(index: int, value: bytes | None) -> bytes:
    written = _varint(-1) if value is None else _varint(len(value)) + value
    body = b"\0" + _varint(0) + _varint(index) + _varint(-1) + written + _varint(0)
    return _varint(len(body)) + body


def batch(
    values: Sequence[bytes | None] = (b"v",),
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    magic: int = 2,
    timestamp_ms: int = TIME_MS,
) -> bytes:
    """Return a batch of records without keys, with one time and its CRC."""
    records = b"".join(_record(index, value) for index, value in enumerate(values))
    fixed = struct.pack(
        ">hiqqqhii",
        *(attributes, len(values) - 1, timestamp_ms, timestamp_ms, producer_id, epoch, sequence, len(values)),
    )
    checked = fixed + records
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, magic, crc32c(checked)) + checked


def message_set(value: bytes, magic: int) -> bytes:
    """Return a message of Kafka's format 0 or 1."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", TIME_MS) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
