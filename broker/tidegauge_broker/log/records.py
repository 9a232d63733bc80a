"""A search by time inside a batch, and the time that a leader stamps on it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from crc32c import crc32c

from tidegauge.record_batch import COMPRESSION_MASK, CRC_START, LOG_APPEND_TIME_BIT, BatchHeader
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.files import Buffer

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIME = Struct(">q")
_CRC_AT, _MAX_TIME_AT = 17, 35


Found = tuple[int, int] | None
Look = Callable[[bytes, int, int], Found]
"""Finds the first record of a time or later, at or above an offset, in a batch: its offset and timestamp, or None."""
_LIGHT_BYTES = 64 * 1024
_ATTRIBUTES_AT = 22


class LookElsewhere(Exception):
    """A search has met a batch that takes too long to look into on the event loop.

    Attributes:
        question: the arguments of ``first_record_at``.
    """

    def __init__(self, *question: Any) -> None:
        super().__init__()
        self.question = question


class Looked:
    """Looks into small batches, and knows what was found in others elsewhere: a search that meets one begins again."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Found] = {}

    def note(self, question: tuple[Any, ...], found: Found) -> None:
        """Take in what was found elsewhere."""
        self._found[question] = found

    def look(self, batch: bytes, timestamp_ms: int, from_offset: int) -> Found:
        """Return what ``first_record_at`` does.

        Raises:
            LookElsewhere: it would take long, since the batch is large or compressed.
        """
        question = (batch, timestamp_ms, from_offset)
        if question in self._found:
            return self._found[question]
        if len(batch) > _LIGHT_BYTES or batch[_ATTRIBUTES_AT] & COMPRESSION_MASK:
            raise LookElsewhere(*question)
        return first_record_at(*question)


def first_record_at(batch: bytes, timestamp_ms: int, from_offset: int, pause: Pause | None = None) -> Found:
    """Offset and timestamp of the first record of this time or later, at or above an offset."""
    for record in decode_records(batch, pause):
        if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
            return record.offset, record.timestamp_ms
    return None


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
