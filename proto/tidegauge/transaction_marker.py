"""Transaction markers: the control batches that end a transaction on a partition.

A marker is a RecordBatch v2, uncompressed, with the attributes transactional and control, the producer's id and epoch,
no sequence, and one record (``EndTransactionMarker``, ``ControlRecordType``; KIP-98)::

    key    version i16 = 0 | type i16: 0 ABORT, 1 COMMIT
    value  version i16 = 0 | coordinatorEpoch i32

It takes one offset. Readers accept higher versions of key and value, of which these fields are the beginning.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    make_batch,
)

_VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_RECORD = struct.Struct(">bbbbb4sb6sb")
"""Length, attributes, timestamp delta, offset delta, length of the key, key, length of the value, value, headers.

Each of the lengths and deltas is a zigzag varint of one byte.
"""


class Outcome(IntEnum):
    """The outcome of a transaction; the number is the control record's type."""

    ABORT = 0
    COMMIT = 1


class TransactionMarker(NamedTuple):
    """One marker: whose transaction it ends, how, and the epoch of the transaction coordinator that wrote it.

    Attributes:
        transaction_version: 2: the transaction's end has raised the producer's epoch (KIP-890, part 2); else 0 or 1.
            It goes with the request, and is in no log.
    """

    producer_id: int
    producer_epoch: int
    outcome: Outcome
    coordinator_epoch: int
    transaction_version: int = 0


def make_marker(marker: TransactionMarker, timestamp_ms: int) -> bytes:
    """Return a marker's control batch; an append sets offset and epoch.

    Args:
        marker: what it says.
        timestamp_ms: the time of its record, in ms since 1970.
    """
    key = _KEY.pack(_VERSION, marker.outcome)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    record = _RECORD.pack(_zigzag(_RECORD.size - 1), 0, 0, 0, _zigzag(len(key)), key, _zigzag(len(value)), value, 0)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
        position=0,
    )
    return make_batch(header, record)


def read_marker(batch: Buffer, header: BatchHeader) -> TransactionMarker | None:
    """Return what a control batch says.

    Args:
        batch: the buffer that holds the batch, at the header's ``position``.
        header: the batch's header.

    Returns:
        The marker; None for a batch without records, which compaction left, and for a control record of another type,
        which readers must skip.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the record is incomplete or its lengths contradict each other.
    """
    if header.record_count == 0:
        return None
    view = memoryview(batch)[header.position + HEADER_BYTES : header.position + header.size_bytes]
    try:
        return _read_record(view, header)
    except (struct.error, IndexError) as problem:
        raise TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE, f"The control batch at offset {header.base_offset} holds no whole control record"
        ) from problem


def _read_record(view: memoryview, header: BatchHeader) -> TransactionMarker | None:
    position = _skip_varint(view, 0) + 1  # length, attributes
    position = _skip_varint(view, _skip_varint(view, position))  # timestamp delta, offset delta
    key_bytes, position = _varint(view, position)
    _, kind = _KEY.unpack_from(view[position : position + max(key_bytes, 0)])
    value_bytes, position = _varint(view, position + key_bytes)
    if kind not in _OUTCOMES:
        return None
    _, coordinator_epoch = _VALUE.unpack_from(view[position : position + max(value_bytes, 0)])
    return TransactionMarker(header.producer_id, header.producer_epoch, Outcome(kind), coordinator_epoch)


_OUTCOMES = frozenset(Outcome)


def _zigzag(number: int) -> int:
    """Return a small length as the one byte of its varint."""
    assert 0 <= number < 64
    return number << 1


def _skip_varint(view: memoryview, position: int) -> int:
    while view[position] & 0x80:
        position += 1
    return position + 1


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it."""
    raw = shift = 0
    while True:
        byte = view[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
