"""Decompress the records of a batch up to a limit: a decompression bomb must cost neither memory nor time.

Contract: call ``inflated`` before decoding records that a peer has sent. Snappy is left to the decoder, since it grows
about twentyfold at most and states its size first; gzip, lz4 and zstd grow a thousandfold. Kafka streams records out of
a batch with a small buffer; a decoder that materialises the whole batch needs a limit instead.
"""

from __future__ import annotations

import zlib
from typing import Any

import cramjam

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_MASK, COMPRESSION_NAMES, HEADER_BYTES, Buffer

MAX_INFLATED_BYTES = 104_857_600
"""socket.request.max.bytes by default: more could not have been sent uncompressed."""
_ATTRIBUTES_AT = 22
_LEAST_ROOM_BYTES = 1 << 17
"""Most producers' batches are smaller, however well they are compressed."""
_GZIP = 16 + zlib.MAX_WBITS


def inflated(batch: Buffer, limit_bytes: int = MAX_INFLATED_BYTES) -> Buffer:
    """Return a batch with its records decompressed, for a decoder that reads only offsets and times of the header.

    Args:
        batch: one complete batch.
        limit_bytes: maximum size of its decompressed records.

    Returns:
        The batch itself where it is not compressed, or with snappy; else one with codec 0 and the length and CRC of the
        compressed one.

    Raises:
        TidegaugeError: RECORD_LIST_TOO_LARGE; UNSUPPORTED_COMPRESSION_TYPE; CORRUPT_MESSAGE, the records can't be
            decompressed.
    """
    codec = batch[_ATTRIBUTES_AT] & COMPRESSION_MASK
    if codec >= len(COMPRESSION_NAMES):
        raise TidegaugeError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {codec}")
    name = COMPRESSION_NAMES[codec]
    payload = memoryview(batch)[HEADER_BYTES:]
    if name in {"none", "snappy"}:
        return batch
    whole = bytearray(batch[:HEADER_BYTES])
    whole[_ATTRIBUTES_AT] &= ~COMPRESSION_MASK
    whole += decompressed(name, payload, limit_bytes)
    return whole


def decompressed(name: str, payload: memoryview, limit_bytes: int = MAX_INFLATED_BYTES) -> Buffer:
    """Return records decompressed by gzip, lz4 or zstd; raises as ``inflated``."""
    if name == "gzip":
        return _gunzipped(payload, limit_bytes)
    return _with(getattr(cramjam, name), payload, limit_bytes)


def too_large(limit_bytes: int) -> TidegaugeError:
    """Return the error of records that take more than a limit when decompressed."""
    return TidegaugeError(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"The batch's records take more than {limit_bytes} bytes when decompressed"
    )


def _corrupt(problem: Exception) -> TidegaugeError:
    return TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The records can't be decompressed: {problem}")


def _gunzipped(payload: memoryview, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP)
    try:
        records = stream.decompress(payload, limit_bytes + 1)
    except zlib.error as problem:
        raise _corrupt(problem) from None
    if len(records) > limit_bytes:
        raise too_large(limit_bytes)
    if not stream.eof:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "The compressed records end too early")
    if stream.unused_data:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "Unexpected bytes follow the compressed records")
    return records


def _with(codec: Any, payload: memoryview, limit_bytes: int) -> memoryview:
    """Decompress into a buffer that never becomes larger than the limit: four times as large at each try."""
    room_bytes = max(_LEAST_ROOM_BYTES, 8 * len(payload))
    while True:
        room = bytearray(min(room_bytes, limit_bytes))
        try:
            return memoryview(room)[: codec.decompress_into(payload, room)]
        except cramjam.DecompressionError as problem:
            if "write whole buffer" not in str(problem):
                raise _corrupt(problem) from None
        if room_bytes >= limit_bytes:
            raise too_large(limit_bytes)
        room_bytes *= 4
