"""Compress record sets as Kafka's brokers do, and decompress message sets of formats 0 and 1.

The numbers of the codecs are those in ``tidegauge.record_batch.COMPRESSION_NAMES``. Levels are Kafka's defaults.

LZ4 frames are written as Kafka writes them: blocks of 64 KB that do not depend on one another, no checksums. Kafka 0.8
computed the checksum of the frame's header over its magic number, too; so message format 0 is written with that
checksum, and read with any checksum (KAFKA-3160, KIP-57).
Source: Lz4BlockOutputStream, Lz4BlockInputStream, GzipCompression, SnappyCompression, ZstdCompression.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

from tidegauge.compressors import cramjam
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_NAMES, Buffer
from tidegauge.record_inflation import MAX_INFLATED_BYTES, SNAPPY_JAVA_MAGIC, decompressed, too_large

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(len(COMPRESSION_NAMES))

_ZSTD_LEVEL = 3
_SNAPPY_HEADER = SNAPPY_JAVA_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 1 << 15
_LZ4_FAST_LEVEL = 9
"""Kafka's default: that it compresses fast; other levels compress hard."""
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_GZIP_TRAILER = struct.Struct("<II")
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"
"""Version 1, blocks that are independent, no checksums, no content size; blocks of at most 64 KB."""
_LZ4_CHECKSUM, _LZ4_BROKEN_CHECKSUM = b"\x82", b"\x1a"
_LZ4_BLOCK_BYTES = 1 << 16
_LZ4_STORED = 0x80000000
_LZ4_SIZE = struct.Struct("<I")
_MOST_BLOCK_BYTES = 1 << 22


class Codec(NamedTuple):
    """A codec and its level; None is Kafka's default level."""

    number: int
    level: int | None = None


def compress(number: int, data: Buffer, magic: int = 2, level: int | None = None) -> Buffer:
    """Return the compressed form of records, as a batch or message holds it.

    Args:
        number: of the codec; 0 none.
        data: the records.
        magic: of the message format; 0 has other LZ4 frames.
        level: of the codec; None for Kafka's default.
    """
    match number:
        case 1:
            return _gzip(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level)
        case 2:
            return _snappy(data)
        case 3:
            return _lz4_frame(data, _LZ4_BROKEN_CHECKSUM if magic == 0 else _LZ4_CHECKSUM, level)
        case 4:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
        case _:
            return data


def decompress(number: int, payload: Buffer, magic: int) -> Buffer:
    """Return the decompressed records of a message of format 0 or 1.

    Their size is limited.

    Raises:
        TidegaugeError: RECORD_LIST_TOO_LARGE, INVALID_RECORD: the format knows no such codec, or CORRUPT_MESSAGE: it
            can't be decompressed.
    """
    if number == LZ4 and magic == 0:
        return _lz4_blocks(memoryview(payload))
    if number in {GZIP, SNAPPY, LZ4}:
        return decompressed(COMPRESSION_NAMES[number], memoryview(payload))
    raise TidegaugeError(ErrorCode.INVALID_RECORD, f"Message format {magic} knows no compression codec {number}")


def _gzip(data: Buffer, level: int) -> bytes:
    """Return a gzip file without time and operating system, as Java does."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    content = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + content + _GZIP_TRAILER.pack(zlib.crc32(data), len(data))


def _snappy(data: Buffer) -> bytes:
    """Return blocks of 32 KiB behind their lengths, as snappy-java's SnappyOutputStream writes them."""
    out, view = bytearray(_SNAPPY_HEADER), memoryview(data)
    for at in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _SNAPPY_BLOCK_BYTES]))
        out += len(block).to_bytes(4) + block
    return bytes(out)


def _lz4_frame(data: Buffer, checksum: bytes, level: int | None) -> bytes:
    how: dict[str, Any] = {"store_size": False}
    if level not in {None, _LZ4_FAST_LEVEL}:
        how |= {"mode": "high_compression", "compression": level}
    out = bytearray(_LZ4_MAGIC + _LZ4_DESCRIPTOR + checksum)
    for at in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[at : at + _LZ4_BLOCK_BYTES]
        smaller = bytes(cramjam.lz4.compress_block(block, **how))
        if len(smaller) < len(block):
            out += _LZ4_SIZE.pack(len(smaller)) + smaller
        else:
            out += _LZ4_SIZE.pack(len(block) | _LZ4_STORED) + block
    return bytes(out + _LZ4_SIZE.pack(0))


def _lz4_blocks(frame: memoryview) -> bytes:
    """Return a frame's content, ignoring the checksum of its header."""
    try:
        if bytes(frame[:4]) != _LZ4_MAGIC or frame[4] & 0xE3 != 0x60:
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "No LZ4 frame of independent blocks")
        has_checksums, at = frame[4] & 0x10, 7 + (8 if frame[4] & 0x08 else 0)
        room_bytes = min(_MOST_BLOCK_BYTES, 1 << (8 + 2 * (frame[5] >> 4 & 7)))
        out, room = bytearray(), bytearray(room_bytes)
        while size := _LZ4_SIZE.unpack_from(frame, at)[0]:
            at, stored_bytes = at + 4, size & ~_LZ4_STORED
            block = frame[at : at + stored_bytes]
            if len(block) < stored_bytes:
                raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "The LZ4 frame ends too early")
            out += block if size & _LZ4_STORED else room[: cramjam.lz4.decompress_block_into(block, room, room_bytes)]
            at += stored_bytes + (4 if has_checksums else 0)
            if len(out) > MAX_INFLATED_BYTES:
                raise too_large(MAX_INFLATED_BYTES)
    except (struct.error, IndexError, cramjam.DecompressionError) as problem:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"No LZ4 frame: {problem}") from problem
    return bytes(out)
