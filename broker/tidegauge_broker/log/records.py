"""A search by time inside a batch, and the time that a leader stamps on it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from tidegauge.checksum import crc32c
from tidegauge.record_batch import COMPRESSION_MASK, CRC_START, LOG_APPEND_TIME_BIT, BatchHeader
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.files import Buffer
from tidegauge_broker.log.segment import NO_TIMESTAMP

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIME = Struct(">q")
_CRC_AT, _MAX_TIME_AT = 17, 35


Found = tuple[int, int] | None
Look = Callable[..., Any]
"""Looks into a batch: called with ``first_record_at`` or ``largest_time_in`` and its arguments without ``pause``, it
returns the result of that."""
_LIGHT_BYTES = 64 * 1024
_ATTRIBUTES_AT = 22


class LookElsewhere(Exception):
    """A search has met a batch that takes too long to look into on the event loop.

    Attributes:
        question: what ``Look`` is called with; the first of it, called with the rest and ``pause``, has the result.
    """

    def __init__(self, *question: Any) -> None:
        super().__init__()
        self.question = question


class Looked:
    """Looks into small batches, and knows what was found in others elsewhere: a search that meets one begins again."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Any] = {}

    def note(self, question: tuple[Any, ...], found: Any) -> None:
        """Take in what was found elsewhere."""
        self._found[question] = found

    def look(self, search: Callable[..., Any], batch: bytes, *rest: Any) -> Any:
        """Return the result of a search in a batch; see ``Look``.

        Raises:
            LookElsewhere: it would take long, since the batch is large or compressed.
        """
        question = (search, batch, *rest)
        if question in self._found:
            return self._found[question]
        if len(batch) > _LIGHT_BYTES or batch[_ATTRIBUTES_AT] & COMPRESSION_MASK:
            raise LookElsewhere(*question)
        return search(batch, *rest)


def look_here(search: Callable[..., Any], batch: bytes, *rest: Any) -> Any:
    """Return the result of a search in a batch of any size; see ``Look``."""
    return search(batch, *rest)


def first_record_at(batch: bytes, timestamp_ms: int, from_offset: int, pause: Pause | None = None) -> Found:
    """Offset and timestamp of the first record of this time or later, at or above an offset."""
    for record in decode_records(batch, pause):
        if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
            return record.offset, record.timestamp_ms
    return None


def largest_time_in(batch: bytes, from_offset: int, below_ms: int | None, pause: Pause | None = None) -> int:
    """Return the largest timestamp of a batch's records in ms; -1 if none counts.

    Args:
        batch: the batch.
        from_offset: records below do not count.
        below_ms: only times below this one count; None: all do.
        pause: in a thread beside the event loop: lets that go on (``large_batches``).
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
