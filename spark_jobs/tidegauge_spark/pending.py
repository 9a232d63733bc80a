"""Batches that wait to be decoded, and their columns: shared by both decoders, columnar and plain.

Contract: ``inflate`` returns the bytes of a batch's records; whatever is wrong with them is a ``BadRecordsError``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import cramjam
import pyarrow as pa

from tidegauge.record_batch import COMPRESSION_NAMES, HEADER_BYTES, BatchHeader

Arrow = Any
"""Any, because pyarrow has no types."""

HEADER_PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER_PAIR))
BAD_BYTES = (
    *(RuntimeError, ValueError, TypeError, IndexError, OSError, EOFError, AssertionError),
    *(zlib.error, struct.error, cramjam.DecompressionError),
)
"""What codecs raise about bytes that they can't read."""
MICROSECONDS_PER_MS = 1_000
MAX_MS = (2**63 - 1) // MICROSECONDS_PER_MS
"""Spark counts microseconds."""


class PendingBatch(NamedTuple):
    """One batch that is still to be decoded.

    Attributes:
        buffer: the buffer in which it was received.
        header: its header, with its position in the buffer.
        from_offset: its first wanted offset.
        high_watermark: the high watermark of its response.
    """

    buffer: bytes
    header: BatchHeader
    from_offset: int
    high_watermark: int


class BadRecordsError(Exception):
    """A batch whose records can't be read, and why."""

    def __init__(self, batch: BatchHeader, why: str) -> None:
        super().__init__(why)
        self.batch = batch


class RecordColumns(NamedTuple):
    """Arrow arrays of one length; ``headers`` is None unless requested."""

    keys: Arrow
    values: Arrow
    offsets: Arrow
    timestamps_us: Arrow
    timestamp_types: Arrow
    headers: Arrow | None
    leader_epochs: Arrow
    high_watermarks: Arrow


def inflate(batch: PendingBatch) -> bytes | memoryview:
    """Return the records of a batch, decompressed.

    Raises:
        BadRecordsError: unknown codec, or bytes that it can't read.
    """
    header = batch.header
    payload = memoryview(batch.buffer)[header.position + HEADER_BYTES : header.position + header.size_bytes]
    if header.compression == 0:
        return payload
    if header.compression >= len(COMPRESSION_NAMES):
        raise BadRecordsError(header, f"there is no compression codec {header.compression}")
    try:
        return _decompressor(COMPRESSION_NAMES[header.compression])(bytes(payload))
    except BAD_BYTES as error:
        raise BadRecordsError(header, str(error) or type(error).__name__) from None


def _decompressor(name: str) -> Callable[[bytes], bytes]:
    from aiokafka import codec  # noqa: PLC0415  (only where something is compressed)

    decompress: Callable[[bytes], bytes] = getattr(codec, f"{name}_decode")
    return decompress
