"""Record batches as a client reads them that knows only the message formats before batches.

Rules (RecordsUtil.downConvert, LazyDownConversionRecords, LazyDownConversionRecordsSend):
    1. Transaction markers, batches that compaction emptied, and headers of records are left out.
    2. Of a batch that is not compressed the records below the offset that was asked for are left out, too; of a
       compressed one they stay, inside one message.
    3. A batch that is compressed with zstd ends the conversion; the first one gives UNSUPPORTED_COMPRESSION_TYPE.
    4. The response has room for the batches as they are stored, or for the first converted one if that is larger; if
       no record is left, for the beginning of a message. Converted messages fill it, as far as they fit. The rest
       of the room is filled with the beginning of a message that is longer than the room, so a client takes it for one
       that did not fit.
    5. Batches are converted one by one, then in pieces of up to 128 KB; where the first batches give no record at all,
       only the first one is passed over after the first piece, so its records come twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import HEADER_BYTES, LOG_APPEND_TIME_BIT, BatchHeader, Buffer, iterate_headers
from tidegauge_broker.formats.compression import NONE, ZSTD
from tidegauge_broker.formats.growing_bytes import GrowingBytes
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.formats.messages import add_message, wrap
from tidegauge_broker.formats.records import decode_records

_PIECE_BYTES = 128 * 1024
_OVERFLOW = struct.Struct(">qi")


class DownConversion(NamedTuple):
    """A message set, and how many records were converted for it."""

    records: bytes
    record_count: int


def down_convert(records: Buffer, magic: int, from_offset: int, pause: Pause | None = None) -> DownConversion:
    """Convert what a fetch read.

    Args:
        records: whole batches.
        magic: the format that the client knows, 0 or 1.
        from_offset: the offset that it asked for.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).

    Raises:
        TidegaugeError: UNSUPPORTED_COMPRESSION_TYPE, rule 3; CORRUPT_MESSAGE, a batch can't be decoded.
    """
    batches = list(iterate_headers(records))
    pieces = _Pieces(memoryview(records), magic, from_offset, pause)
    first, first_end = b"", 0
    while not first and first_end < len(batches):
        first = pieces.converted(batches[first_end : first_end + 1])
        first_end += 1
    if not first:
        return DownConversion(_overflow(_OVERFLOW.size) if batches else b"", 0)
    room_bytes = max(len(records), len(first))
    out = bytearray(first)
    try:
        for piece in _by_size(batches[1:]):
            if len(out) >= room_bytes:
                break
            out += pieces.converted(piece)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            raise
    del out[room_bytes:]
    while len(out) < room_bytes:
        out += _overflow(room_bytes - len(out))
    return DownConversion(bytes(out), pieces.count)


def _by_size(batches: Sequence[BatchHeader]) -> Iterator[Sequence[BatchHeader]]:
    piece: list[BatchHeader] = []
    size_bytes = 0
    for batch in batches:
        if piece and size_bytes + batch.size_bytes > _PIECE_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(batch)
        size_bytes += batch.size_bytes
    if piece:
        yield piece


def _overflow(left_bytes: int) -> bytes:
    """Return filler for the room's rest, at most one piece. Rule 4."""
    filler = bytearray(max(_OVERFLOW.size, min(left_bytes + 1, _PIECE_BYTES)))
    _OVERFLOW.pack_into(filler, 0, -1, max(left_bytes + 1, HEADER_BYTES))
    return bytes(filler[:left_bytes])


class _Pieces:
    """Converts batches, and counts their records."""

    def __init__(self, records: memoryview, magic: int, from_offset: int, pause: Pause | None) -> None:
        self.count = 0
        self._records = records
        self._magic = magic
        self._from_offset = from_offset
        self._pause = pause

    def converted(self, batches: Sequence[BatchHeader]) -> bytes:
        """Return these batches' messages; raise if one can't be converted."""
        if any(batch.compression == ZSTD and not batch.is_control for batch in batches):
            raise TidegaugeError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "Down-conversion of zstandard-compressed batches is not supported",
            )
        return b"".join(self._batch(batch) for batch in batches if not batch.is_control)

    def _batch(self, header: BatchHeader) -> Buffer:
        """Convert record by record, so that a batch of millions takes no more memory than its bytes."""
        is_compressed = header.compression != NONE
        kind = header.attributes & LOG_APPEND_TIME_BIT
        messages, count, first_offset, last_offset, max_time_ms = GrowingBytes(), 0, 0, 0, 0
        batch = self._records[header.position : header.position + header.size_bytes]
        for one in decode_records(batch, self._pause):
            if not is_compressed and one.offset < self._from_offset:
                continue
            if not count:
                max_time_ms = one.timestamp_ms
                first_offset = one.offset if is_compressed and self._magic > 0 else 0
            count, last_offset = count + 1, one.offset
            max_time_ms = max(max_time_ms, one.timestamp_ms)
            time_ms = header.max_timestamp_ms if kind else one.timestamp_ms
            offset = one.offset - first_offset
            add_message(messages, offset, self._magic, time_ms, one.key, one.value, kind, self._pause)
        self.count += count
        if not is_compressed or not count:
            return messages.content
        time_ms = header.max_timestamp_ms if kind else max_time_ms
        return wrap(messages.content, header.compression, self._magic, last_offset, time_ms, kind)
