"""Batches of the metadata log: not compressed, without a producer, all records with the time of the append.

Source: ``org.apache.kafka.raft.internals.BatchBuilder``; ``MemoryRecords.withLeaderChangeMessage`` and its siblings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.kraft.control_types import decode_control, encode_control
from tidegauge.record_batch import (
    CONTROL_BIT,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Buffer,
    crc_matches,
    iterate_headers,
    make_batch,
)
from tidegauge_broker.formats.records import StoredRecord, decode_records, encode_records

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""The limit of one batch (``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``)."""


class MetadataBatch(NamedTuple):
    """A batch that was read.

    Attributes:
        header: its header; ``position`` is the one in the buffer that was read.
        control: the messages of a control batch; empty for a batch of data.
        values: the values of the records of a batch of data; empty for a control batch.
    """

    header: BatchHeader
    control: tuple[Any, ...]
    values: tuple[bytes, ...]


def control_batch(messages: Sequence[Any], base_offset: int, epoch: int, now_ms: int) -> bytes:
    """Return a batch of control records, at least one (messages of ``control_types``)."""
    return _batch([encode_control(message) for message in messages], base_offset, epoch, now_ms, CONTROL_BIT)


def data_batch(values: Sequence[bytes], base_offset: int, epoch: int, now_ms: int) -> bytes:
    """Return a batch of records, at least one, from their values (``record_types.encode_record``)."""
    return _batch([(None, value) for value in values], base_offset, epoch, now_ms, 0)


def _batch(
    pairs: Sequence[tuple[bytes | None, bytes]], base_offset: int, epoch: int, now_ms: int, attributes: int
) -> bytes:
    records = [StoredRecord(base_offset + at, now_ms, key, value, ()) for at, (key, value) in enumerate(pairs)]
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=len(records),
        position=0,
    )
    return make_batch(header, encode_records(records, base_offset, now_ms))


def read_batches(buffer: Buffer) -> Iterator[MetadataBatch]:
    """Yield the batches of a segment, a snapshot or a Fetch response, one at a time.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a batch is incomplete, its CRC is wrong, its records can't be decoded, a
            record of data has no value, or a control record is unknown.
    """
    view = memoryview(buffer)
    for header in iterate_headers(view):
        if not crc_matches(view, header):
            raise _corrupt(header, "its CRC is wrong")
        records = list(decode_records(view[header.position : header.position + header.size_bytes]))
        if not header.is_control:
            values = tuple(bytes(record.value) for record in records if record.value is not None)
            if len(values) != len(records):
                raise _corrupt(header, "a record has no value")
            yield MetadataBatch(header, (), values)
            continue
        try:
            control = [decode_control(one.key, None if one.value is None else bytes(one.value)) for one in records]
        except MalformedMessage as problem:
            raise _corrupt(header, str(problem)) from None
        yield MetadataBatch(header, tuple(control), ())


def _corrupt(header: BatchHeader, reason: str) -> TidegaugeError:
    text = f"The batch at byte {header.position} with base offset {header.base_offset} can't be read: {reason}"
    return TidegaugeError(ErrorCode.CORRUPT_MESSAGE, text)
