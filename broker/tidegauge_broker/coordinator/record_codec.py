"""Records and batches of the internal topics: encoded, decoded, put into batches and read from the log.

A key or value is its version, an int16, and the fields of that version. A record without value is a tombstone.
Source: Kafka's MessageUtil.toVersionPrefixedBytes, MemoryRecords.withRecords.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import MalformedMessage, begin_message, codec
from tidegauge.record_batch import BatchHeader, Buffer, crc_matches, iterate_headers
from tidegauge.record_codec import RecordBatch, RecordBatchBuilder
from tidegauge.record_inflation import inflated

NO_SEQUENCE = -1
NO_PRODUCER = (-1, -1)
"""Producer id and epoch of a batch that has none."""
_VERSION = struct.Struct(">h")
_UNLIMITED_BYTES = 2**31 - 1
_MAGIC = 2
_Value = TypeVar("_Value")


class Record(NamedTuple):
    """A key, and a value or None for a tombstone."""

    key: bytes
    value: bytes | None


class UnknownKey(NamedTuple):
    """A key of a version that Kafka 3.9 does not write, left behind by a newer broker; it is skipped (KIP-915)."""

    version: int


class LoadedBatch(NamedTuple):
    """A batch and its records, with its first record's offset, None if compaction left none."""

    header: BatchHeader
    records: Sequence[tuple[bytes | None, bytes | None]]
    first_offset: int | None


def batch_of(
    records: Iterable[Record],
    now_ms: int,
    base_sequence: int = NO_SEQUENCE,
    compression: int = 0,
    transactional_producer: tuple[int, int] | None = None,
) -> bytes:
    """Return a batch of magic 2 with these records, all of one time.

    Args:
        records: at least one.
        now_ms: their timestamp (CreateTime).
        base_sequence: -1, or 0 for commits, which Kafka gives a sequence although they may have no producer.
        compression: number of the codec; 0 none.
        transactional_producer: producer id and epoch of a transactional batch; None: no producer.
    """
    producer_id, producer_epoch = transactional_producer or NO_PRODUCER
    builder: Any = RecordBatchBuilder(
        magic=_MAGIC,
        compression_type=compression,
        is_transactional=transactional_producer is not None,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=_UNLIMITED_BYTES,
    )
    for index, record in enumerate(records):
        builder.append(index, now_ms, record.key, record.value, [])
    return bytes(builder.build())


def read_batches(batches: Buffer) -> Iterator[LoadedBatch]:
    """Yield the batches of a part of the log with their records.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a batch is damaged or its records can't be decoded.
    """
    for header in iterate_headers(batches):
        if not crc_matches(batches, header):
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
        whole = inflated(bytes(memoryview(batches)[header.position : header.position + header.size_bytes]))
        try:
            decoded: Any = list(RecordBatch(memoryview(whole)))
        except Exception as problem:  # any error of the codecs
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The records can't be decoded: {problem}") from problem
        yield LoadedBatch(
            header, [(record.key, record.value) for record in decoded], decoded[0].offset if decoded else None
        )


def encoded(message: Any, version: int, *, flexible: bool = False) -> bytes:
    """Return a written key or value: its version, and its fields."""
    encode = codec(message.__class__, version, flexible).encode
    assert encode is not None, "only values with record batches inside have no such function"
    return _VERSION.pack(version) + encode(message)


def version_of(buffer: bytes) -> int:
    """Return the version of a key or value.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, it has none.
    """
    if len(buffer) < _VERSION.size:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "a key or value of a coordinator's record has no version")
    (version,) = _VERSION.unpack_from(buffer)
    return int(version)


def decoded(kind: type[_Value], buffer: bytes, version: int, *, flexible: bool = False) -> _Value:
    """Return the fields of a key or value.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are not of this kind and version.
    """
    begin_message()
    try:
        structure: Any = kind
        value: _Value
        value, end = codec(structure, version, flexible).decode(memoryview(buffer), _VERSION.size)
    except (MalformedMessage, struct.error, IndexError, UnicodeDecodeError) as problem:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"not a {kind.__name__}: {problem}") from problem
    if end > len(buffer):
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"a {kind.__name__} ends behind its record")
    return value
