"""A search by time inside a batch, and the time that a leader stamps on it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from tidegauge.checksum import crc32c
from tidegauge.record_batch import COMPRESSION_MASK, CRC_START, HEADER_BYTES, LOG_APPEND_TIME_BIT, BatchHeader
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.files import Buffer
from tidegauge_broker.log.segment import NO_TIMESTAMP

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIME = Struct(">q")
_CRC_AT, _MAX_TIME_AT = 17, 35


BatchSearch = tuple[Any, ...]
"""``first_record_at`` or ``largest_time_in`` and its arguments without ``pause``; the batch is the first of them."""
SearchBatch = Callable[..., Any]
"""Looks into a batch: called with the parts of a ``BatchSearch``, it returns the result of the function in it."""
_LIGHT_BYTES = 64 * 1024
_ATTRIBUTES_AT = 22


def is_light(question: BatchSearch) -> bool:
    """Whether a batch may be searched on the event loop: it is small, and not compressed."""
    batch = question[1]
    return len(batch) <= _LIGHT_BYTES and not batch[_ATTRIBUTES_AT] & COMPRESSION_MASK


class KnownResults:
    """Knows the results in large batches: a search that begins again asks for them again."""

    def __init__(self) -> None:
        self._found: dict[BatchSearch, Any] = {}

    def has(self, question: BatchSearch) -> bool:
        """Return whether the result is known."""
        return self._key(question) in self._found

    def note(self, question: BatchSearch, found: Any) -> None:
        """Take in a result."""
        self._found[self._key(question)] = found

    def result(self, question: BatchSearch) -> Any:
        """Return a known result."""
        return self._found[self._key(question)]

    @staticmethod
    def _key(question: BatchSearch) -> BatchSearch:
        """Name a batch by its header, whose CRC covers the records: they may take much memory."""
        search, batch, *rest = question
        return search, len(batch), bytes(batch[:HEADER_BYTES]), *rest


def search_here(search: Callable[..., Any], batch: bytes, *rest: Any) -> Any:
    """Return a search's result in a batch of any size; see ``SearchBatch``."""
    return search(batch, *rest)


def first_record_at(
    batch: bytes, timestamp_ms: int, from_offset: int, pause: Pause | None = None
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record of this time or later, at or above an offset."""
    for record in decode_records(batch, pause):
        if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
            return record.offset, record.timestamp_ms
    return None


def largest_time_in(batch: bytes, from_offset: int, below_ms: int | None, pause: Pause | None = None) -> int:
    """Return the largest timestamp (ms) of a batch's records, or -1.

    Args:
        batch: the batch.
        from_offset: records below do not count.
        below_ms: only times below this one count; None: all do.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).
    """
    largest = NO_TIMESTAMP
    for record in decode_records(batch, pause):
        is_below = below_ms is None or record.timestamp_ms < below_ms
        if is_below and record.offset >= from_offset and record.timestamp_ms > largest:
            largest = record.timestamp_ms
    return largest


def stamp_append_time(head: bytearray, rest: Buffer, header: BatchHeader, append_time_ms: int) -> BatchHeader:
    """Give a batch the leader's time (message.timestamp.type=LogAppendTime), as DefaultRecordBatch.setMaxTimestamp.

    Args:
        head: the batch's header bytes, changed in place; both fields lie inside the CRC, so that is computed again.
        rest: the batch's other bytes.
        header: the header before.
        append_time_ms: the time.

    Returns:
        The header after.
    """
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(head, CRC_START, attributes)
    _TIME.pack_into(head, _MAX_TIME_AT, append_time_ms)
    crc: int = crc32c(rest, crc32c(head[CRC_START:]))
    _CRC.pack_into(head, _CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp_ms=append_time_ms, crc=crc)
