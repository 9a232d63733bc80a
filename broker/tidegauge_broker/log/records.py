"""A search by time inside a batch, and the time that a leader stamps on it."""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from tidegauge.record_batch import CRC_START, LOG_APPEND_TIME_BIT, BatchHeader
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.files import Buffer

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIME = Struct(">q")
_CRC_AT, _MAX_TIME_AT = 17, 35


def first_record_at(batch: bytes, timestamp_ms: int, from_offset: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record of this time or later, at or above an offset."""
    for record in decode_records(batch):
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
