"""Reading past batches without records, which compaction has left (``compaction.py``, rules 5 to 7).

Contract: pure; the log gives the function that reads. Kafka gives such a batch alone if it ends a segment
(LocalLog.read), and Java's consumer takes its last offset and fetches what follows. Other clients keep to the offset
of the last record that they saw: librdkafka reports MSG_SIZE_TOO_LARGE, kafkajs and kafka-go never get past the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from tidegauge.errors import TidegaugeError
from tidegauge.record_batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, iterate_headers

_LENGTH = Struct(">i")
_LENGTH_AT = LENGTH_PREFIX_BYTES - _LENGTH.size
_LENGTH_OF_HEADER = _LENGTH.pack(HEADER_BYTES - LENGTH_PREFIX_BYTES)
_READ_BYTES = 4096
_MAX_BYTES = 1 << 20
"""Limit of the bytes to skip: a log has no more such batches in a row than producers."""


def begins_empty(batches: bytes) -> bool:
    """Whether the first of some batches, if there is one, has no records."""
    return batches.startswith(_LENGTH_OF_HEADER, _LENGTH_AT)


def read_on(found: bytes, max_bytes: int, read: Callable[[int, int], bytes], *, may_exceed: bool) -> bytes:
    """Return a read, continued up to the first read with records.

    Args:
        found: whole batches, the first of them without records.
        max_bytes: the reader's limit.
        read: reads whole batches from an offset on, with such a limit; nothing at the end.
        may_exceed: a record counts for more than the limit; bytes beyond it are read in small pieces.

    Raises:
        OSError: the disk refused.
    """
    given = more = found
    while more and len(given) <= _MAX_BYTES:
        next_offset = 0
        for header in iterate_headers(more):
            if header.record_count:
                return given
            next_offset = header.next_offset
        try:
            left = max_bytes - len(given)
            more = read(next_offset, max(left, _READ_BYTES) if may_exceed else left)
        except TidegaugeError:
            return given  # what lies before a damaged batch is given, as within a segment
        given += more
    return given
