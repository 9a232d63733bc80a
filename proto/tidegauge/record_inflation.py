"""How large a compressed batch becomes, found out without making it: a bomb must cost neither memory nor time.

Contract: ``check_inflated_size`` comes before any decoding of records that somebody else has sent. Snappy cannot do
much (it grows at most some twentyfold and says its size first); gzip, lz4 and zstd grow a thousandfold and more.
Kafka streams records out of a batch with a small buffer; a decoder that makes all of it at once needs a bound instead.
"""

from __future__ import annotations

import zlib
from typing import Any

import cramjam

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_MASK, COMPRESSION_NAMES, HEADER_BYTES

MAX_INFLATED_BYTES = 104_857_600
"""socket.request.max.bytes by default: more could not have been sent uncompressed."""
_ATTRIBUTES_AT = 22
_STEP_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


def check_inflated_size(batch: bytes, limit_bytes: int = MAX_INFLATED_BYTES) -> None:
    """Refuse a batch whose records would take more than a limit.

    Args:
        batch: one whole batch.
        limit_bytes: the most that its records may take.

    Raises:
        TidegaugeError: RECORD_LIST_TOO_LARGE; UNSUPPORTED_COMPRESSION_TYPE; CORRUPT_MESSAGE, it can't be decompressed.
    """
    codec = batch[_ATTRIBUTES_AT] & COMPRESSION_MASK
    if codec >= len(COMPRESSION_NAMES):
        raise TidegaugeError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {codec}")
    name = COMPRESSION_NAMES[codec]
    payload = batch[HEADER_BYTES:]
    if name == "gzip":
        _check_gzip(payload, limit_bytes)
    elif name in {"lz4", "zstd"}:
        _check_with(getattr(cramjam, name), payload, limit_bytes)


def _too_large(limit_bytes: int) -> TidegaugeError:
    return TidegaugeError(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"The batch's records take more than {limit_bytes} bytes when decompressed"
    )


def _check_gzip(payload: bytes, limit_bytes: int) -> None:
    size_bytes = 0
    stream = zlib.decompressobj(_GZIP)
    try:
        while payload and not stream.eof:
            size_bytes += len(stream.decompress(payload, _STEP_BYTES))
            if size_bytes > limit_bytes:
                raise _too_large(limit_bytes)
            payload = stream.unconsumed_tail
    except zlib.error as problem:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The records can't be decompressed: {problem}") from None
    if stream.unused_data:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "Something stands behind the compressed records")


def _check_with(codec: Any, payload: bytes, limit_bytes: int) -> None:
    """Decompress into a buffer that never becomes larger than the limit: four times as large at each try."""
    room_bytes = max(_STEP_BYTES, 16 * len(payload))
    while True:
        room_bytes = min(room_bytes, limit_bytes)
        try:
            codec.decompress_into(payload, bytearray(room_bytes))
        except cramjam.DecompressionError as problem:
            if "write whole buffer" not in str(problem):
                raise TidegaugeError(
                    ErrorCode.CORRUPT_MESSAGE, f"The records can't be decompressed: {problem}"
                ) from None
        else:
            return
        if room_bytes >= limit_bytes:
            raise _too_large(limit_bytes)
        room_bytes *= 4
