"""A batch compressed otherwise than its producer did: what ``compression.type`` of a topic asks for.

Rules (LogValidator.validateMessagesAndAssignOffsetsCompressed, buildRecordsAndAssignOffsets):
    1. A batch with the wanted codec stays as it is, at any level; so do markers, which are not compressed.
    2. Else offsets, times, headers, producer and sequence of the records stay; the base timestamp is the
       first record's, the largest timestamp the largest of all.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Buffer,
    make_batch,
)
from tidegauge_broker.formats.compression import Codec, compress
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.formats.records import decode_records, encode_all


class Recompressed(NamedTuple):
    """A batch's header with its new size, and the bytes behind it."""

    header: BatchHeader
    payload: Buffer

    def batch(self) -> bytes:
        """Return the batch."""
        return make_batch(self.header, self.payload)


def recompress(records: Buffer, header: BatchHeader, target: Codec, pause: Pause | None = None) -> Recompressed | None:
    """Return a checked batch in the topic's codec; None if unchanged.

    Args:
        records: the batch.
        header: its header.
        target: the codec.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, its records can't be decoded.
    """
    if header.compression == target.number or header.attributes & CONTROL_BIT:
        return None
    found = encode_all(decode_records(records, pause), header.base_offset, pause)
    payload = compress(target.number, found.body, level=target.level)
    changed = header._replace(
        attributes=header.attributes & ~COMPRESSION_MASK | target.number,
        base_timestamp_ms=found.base_timestamp_ms,
        max_timestamp_ms=found.max_timestamp_ms,
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload),
    )
    return Recompressed(changed, payload)
