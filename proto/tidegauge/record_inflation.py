"""Records out of a compressed batch, never more of them than a limit: a bomb must cost neither memory nor time.

Contract: ``inflated`` comes before any decoding of records that somebody else has sent. Snappy cannot do much (it grows
at most some twentyfold and says its size first), and is left to the decoder; gzip, lz4 and zstd grow a thousandfold.
Kafka streams records out of a batch with a small buffer; a decoder that makes all of it at once needs a bound instead.
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
    """A batch with its records decompressed, for a decoder: of the header it looks at offsets and times alone.

    Args:
        batch: one whole batch.
        limit_bytes: the most that its records may take.

    Returns:
        The batch itself where it is not compressed, or with snappy; else one with codec 0 and the length and CRC of the
        compressed one.

    Raises:
        TidegaugeError: RECORD_LIST_TOO_LARGE; UNSUPPORTED_COMPRESSION_TYPE; CORRUPT_MESSAGE, it can't be decompressed.
    """
    codec = batch[_ATTRIBUTES_AT] & COMPRESSION_MASK
    if codec >= len(COMPRESSION_NAMES):
        raise TidegaugeError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {codec}")
    name = COMPRESSION_NAMES[codec]
    payload = memoryview(batch)[HEADER_BYTES:]
    if name in {"none", "snappy"}:
        return batch
    records = (
        _gunzipped(payload, limit_bytes) if name == "gzip" else _with(getattr(cramjam, name), payload, limit_bytes)
    )
    whole = bytearray(batch[:HEADER_BYTES])
    whole[_ATTRIBUTES_AT] &= ~COMPRESSION_MASK
    whole += records
    return whole


def _too_large(limit_bytes: int) -> TidegaugeError:
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
        raise _too_large(limit_bytes)
    if not stream.eof:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "The compressed records are cut off")
    if stream.unused_data:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "Something stands behind the compressed records")
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
            raise _too_large(limit_bytes)
        room_bytes *= 4
