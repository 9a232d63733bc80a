"""Decompress the records of a batch up to a limit: a decompression bomb must cost neither memory nor time.

Contract: call ``inflated`` before decoding records that a peer has sent. A small payload of snappy is left to the
decoder, since it grows about twentyfold at most and states its size first; gzip, lz4 and zstd grow a thousandfold.
Kafka streams records out of a batch with a small buffer; a decoder that materialises the whole batch needs a limit
instead.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from tidegauge.compressors import cramjam
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_MASK, COMPRESSION_NAMES, HEADER_BYTES, Buffer

MAX_INFLATED_BYTES = 104_857_600
"""socket.request.max.bytes by default: more could not have been sent uncompressed."""
_ATTRIBUTES_AT = 22
_LEAST_ROOM_BYTES = 1 << 17
"""Most producers' batches are smaller, however well they are compressed."""
_LARGE_ROOM_BYTES = 1 << 20
"""A larger buffer is mapped: its pages come as they are written to, by a codec that lets other threads run meanwhile.
To fill 100 MiB with zeros first, as ``bytearray`` does, stops all threads for some 100 ms."""
_PIECE_BYTES = 1 << 19
_SNAPPY_LEFT_BYTES = 12 * 1024
SNAPPY_JAVA_MAGIC = b"\x82SNAPPY\x00"
"""The first bytes that Java's SnappyOutputStream writes, with two version numbers behind them."""
_XERIAL_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")
_GZIP = 16 + zlib.MAX_WBITS


def inflated(batch: Buffer, limit_bytes: int = MAX_INFLATED_BYTES) -> Buffer:
    """Return a batch decompressed, for readers of header offsets and times.

    Args:
        batch: one complete batch.
        limit_bytes: maximum size of its decompressed records.

    Returns:
        The batch itself if it is not compressed, or with snappy and small; else one with codec 0 and the length and CRC
        of the compressed one.

    Raises:
        TidegaugeError: RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, or CORRUPT_MESSAGE: the records can't be
            decompressed.
    """
    codec = batch[_ATTRIBUTES_AT] & COMPRESSION_MASK
    if codec >= len(COMPRESSION_NAMES):
        raise TidegaugeError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {codec}")
    name = COMPRESSION_NAMES[codec]
    payload = memoryview(batch)[HEADER_BYTES:]
    if name == "none" or (name == "snappy" and len(payload) <= _SNAPPY_LEFT_BYTES):
        return batch
    whole = _decompressed(name, payload, limit_bytes, batch[:HEADER_BYTES])
    whole[_ATTRIBUTES_AT] &= ~COMPRESSION_MASK
    return whole


def decompressed(name: str, payload: memoryview, limit_bytes: int = MAX_INFLATED_BYTES) -> Buffer:
    """Return decompressed records; raises as ``inflated``."""
    return _decompressed(name, payload, limit_bytes, b"")


def _decompressed(name: str, payload: memoryview, limit_bytes: int, head: Buffer) -> memoryview:
    """Return ``head`` and the decompressed records behind it, in one writable buffer."""
    if name == "gzip":
        return _gunzipped(payload, limit_bytes, head)
    if name == "snappy":
        return _unsnapped(payload, limit_bytes, head)
    return _with(getattr(cramjam, name), payload, limit_bytes, head)


def too_large(limit_bytes: int) -> TidegaugeError:
    """Return the error of records that take more than a limit when decompressed."""
    return TidegaugeError(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"The batch's records take more than {limit_bytes} bytes when decompressed"
    )


def _corrupt(problem: Exception) -> TidegaugeError:
    return TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The records can't be decompressed: {problem}")


def _room(size_bytes: int) -> memoryview:
    return memoryview(bytearray(size_bytes) if size_bytes <= _LARGE_ROOM_BYTES else mmap.mmap(-1, size_bytes))


def _gunzipped(payload: memoryview, limit_bytes: int, head: Buffer) -> memoryview:
    """Decompress piece by piece: zlib joins a large result while no other thread runs."""
    stream, most_bytes = zlib.decompressobj(_GZIP), len(head) + limit_bytes
    room, filled_bytes = memoryview(bytearray(head)), len(head)
    for piece in _gzip_pieces(stream, payload):
        end = filled_bytes + len(piece)
        if end > most_bytes:
            raise too_large(limit_bytes)
        if end > len(room):  # the first piece is most often all
            grown = _room(end if stream.eof else min(max(4 * end, _LARGE_ROOM_BYTES), most_bytes))
            for at in range(0, filled_bytes, _PIECE_BYTES):
                grown[at : min(at + _PIECE_BYTES, filled_bytes)] = room[at : min(at + _PIECE_BYTES, filled_bytes)]
            room = grown
        room[filled_bytes:end] = piece
        filled_bytes = end
    if not stream.eof:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "The compressed records end too early")
    if stream.unused_data:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "Unexpected bytes follow the compressed records")
    return room[:filled_bytes]


def _gzip_pieces(stream: Any, payload: memoryview) -> Iterator[bytes]:
    try:
        for at in range(0, len(payload), _PIECE_BYTES):
            piece = stream.decompress(payload[at : at + _PIECE_BYTES], _PIECE_BYTES)
            yield piece
            while not stream.eof and (stream.unconsumed_tail or len(piece) == _PIECE_BYTES):
                piece = stream.decompress(stream.unconsumed_tail, _PIECE_BYTES)
                yield piece
            if stream.eof:
                if at + _PIECE_BYTES < len(payload):
                    raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "Unexpected bytes follow the compressed records")
                return
    except zlib.error as problem:
        raise _corrupt(problem) from None


def _unsnapped(payload: memoryview, limit_bytes: int, head: Buffer) -> memoryview:
    blocks = list(_snappy_blocks(payload))
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > limit_bytes:
            raise too_large(limit_bytes)
        room, at = _room(len(head) + sum(sizes)), len(head)
        room[:at] = head
        for block, size_bytes in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, room[at : at + size_bytes])
            at += size_bytes
    except cramjam.DecompressionError as problem:
        raise _corrupt(problem) from None
    return room


def _snappy_blocks(payload: memoryview) -> Iterator[memoryview]:
    """Yield the blocks that SnappyOutputStream of Java framed; else the payload, which is one."""
    if payload[: len(SNAPPY_JAVA_MAGIC)] != SNAPPY_JAVA_MAGIC:
        yield payload
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(payload):
        if at + _BLOCK_SIZE.size > len(payload):
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "The compressed records end too early")
        (size_bytes,) = _BLOCK_SIZE.unpack_from(payload, at)
        at += _BLOCK_SIZE.size
        if not 0 <= size_bytes <= len(payload) - at:
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"A block of {size_bytes} bytes ends behind the records")
        yield payload[at : at + size_bytes]
        at += size_bytes


def _with(codec: Any, payload: memoryview, limit_bytes: int, head: Buffer) -> memoryview:
    """Decompress into a buffer that never becomes larger than the limit: 64 times as large at each try."""
    room_bytes = min(max(_LEAST_ROOM_BYTES, 8 * len(payload)), limit_bytes)
    while True:
        room = _room(len(head) + room_bytes)
        try:
            size_bytes = codec.decompress_into(payload, room[len(head) :])
        except cramjam.DecompressionError as problem:
            if "write whole buffer" not in str(problem):
                raise _corrupt(problem) from None
        else:
            room[: len(head)] = head
            return room[: len(head) + size_bytes]
        if room_bytes >= limit_bytes:
            raise too_large(limit_bytes)
        room_bytes = min(room_bytes * 64, limit_bytes)
