"""A batch compressed otherwise than its producer did: what ``compression.type`` of a topic asks for.

Rules (LogValidator.validateMessagesAndAssignOffsetsCompressed, buildRecordsAndAssignOffsets):
    1. A batch with the wanted codec stays as it is, whatever its level; so do markers, which are not compressed.
    2. Else offsets, times, headers, producer and sequence of the records stay; the base timestamp is the
       first record's, the largest one that of all.
"""

from __future__ import annotations

from tidegauge.record_batch import COMPRESSION_MASK, CONTROL_BIT, BatchHeader, Buffer, make_batch
from tidegauge_broker.formats.compression import Codec, compress
from tidegauge_broker.formats.records import decode_records, encode_records


def recompress(records: Buffer, header: BatchHeader, target: Codec) -> bytes | None:
    """Return a checked batch with the codec that a topic wants; None where it has it.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, its records can't be decoded.
    """
    if header.compression == target.number or header.attributes & CONTROL_BIT:
        return None
    found = list(decode_records(records))
    base_timestamp_ms = found[0].timestamp_ms
    changed = header._replace(
        attributes=header.attributes & ~COMPRESSION_MASK | target.number,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in found),
    )
    body = encode_records(found, header.base_offset, base_timestamp_ms)
    return make_batch(changed, compress(target.number, body, level=target.level))
