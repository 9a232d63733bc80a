"""Record batches for clients: encode records into RecordBatch v2 bytes, and decode them.

This is the only module that knows aiokafka's compiled codec (``aiokafka.record.default_records``), which is untyped and
partly private; other modules use the typed names below.

Rules:
    1. A batch keeps its bytes over retries; only ``restamp`` gives it another producer state, and computes the CRC,
       which covers these fields, again.
    2. Decoding checks the CRC first (``check.crcs``), skips control batches, and yields no record below the requested
       offset: the first batch of a fetch may begin earlier (CompletedFetch.fetchRecords).
    3. With LogAppendTime every record of a batch has the batch's largest timestamp.

Source: ``org.apache.kafka.common.record.DefaultRecordBatch``.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from tidegauge.checksum import crc32c
from tidegauge.compressors import cramjam
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import (
    COMPRESSION_NAMES,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    crc_matches,
    iterate_headers,
    patch,
)
from tidegauge.record_codec import RecordBatch, RecordBatchBuilder

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

RECORD_OVERHEAD_BYTES = 21
"""Maximum size of a record's length, attributes, timestamp and offset, as Kafka estimates them."""

_FIXED_BYTES = HEADER_BYTES + RECORD_OVERHEAD_BYTES + 15

Headers = Sequence[tuple[str, bytes | None]]

_CRC = struct.Struct(">I")
_CRC_POSITION = 17
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_POSITION = 43
_UNLIMITED = 2**31 - 1
_UNREADABLE = (RuntimeError, ValueError, OSError, struct.error, zlib.error, cramjam.DecompressionError)
"""aiokafka's CorruptRecordException and UnsupportedCodecError are RuntimeErrors; the codecs have others."""
_new = tuple.__new__
Row = TypeVar("Row", bound=tuple[Any, ...])


class NewRecord(NamedTuple):
    """A record to be written; the timestamp is in ms since 1970."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    headers: Headers = ()


class Record(NamedTuple):
    """A record that was read. ``timestamp_type`` is 0 (CreateTime) or 1 (LogAppendTime)."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


def compression_number(name: str) -> int:
    """Return the codec's number in a batch's attributes.

    Raises:
        TidegaugeError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    try:
        return COMPRESSION_NAMES.index(name)
    except ValueError:
        raise TidegaugeError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"there is no compression '{name}'; choose one of {', '.join(COMPRESSION_NAMES)}",
        ) from None


def estimate_size_bytes(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound of a batch with this one record (``AbstractRecords.estimateSizeInBytesUpperBound``)."""
    size = _FIXED_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers:
        for name, content in headers:
            size += 10 + len(name.encode()) + (0 if content is None else len(content))
    return size


class BatchBuilder:
    """Collects records until a size is reached, then builds the bytes of one batch.

    Attributes:
        record_count: records so far.
    """

    __slots__ = ("_append", "_builder", "record_count")

    def __init__(
        self, *, compression: str = "none", max_size_bytes: int = _UNLIMITED, is_transactional: bool = False
    ) -> None:
        self._builder: Any = RecordBatchBuilder(
            magic=MAGIC,
            compression_type=compression_number(compression),
            is_transactional=int(is_transactional),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            batch_size=max_size_bytes,
        )
        self._append: Any = self._builder.append
        self.record_count = 0

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the batch so far, header included, before compression."""
        size_bytes: int = self._builder.size()
        return size_bytes

    def append(self, value: bytes | None, key: bytes | None, timestamp_ms: int, headers: Headers = ()) -> bool:
        """Add a record; return False if it does not fit. The first always fits, however large it is."""
        if self._append(self.record_count, timestamp_ms, key, value, list(headers) if headers else []) is None:
            return False
        self.record_count += 1
        return True

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> bytes:
        """Build the batch, compressed if that makes it smaller. Call it once; afterwards no record can be added."""
        assert self.record_count > 0, "a batch holds at least one record"
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
        return bytes(self._builder.build())


def encode_batch(
    records: Iterable[tuple[Any, ...]],
    *,
    compression: str = "none",
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
) -> bytes:
    """Encode records as exactly one batch.

    Args:
        records: at least one; ``NewRecord``, or tuples of its fields in its order.
        compression: none, gzip, snappy, lz4 or zstd.
        producer_id: the idempotent producer's id, else -1; likewise ``producer_epoch`` and ``base_sequence``.
        producer_epoch: see ``producer_id``.
        base_sequence: sequence of the first record.
        base_offset: offset of the first record; a producer leaves 0, the leader sets it.
        leader_epoch: a producer leaves -1, the leader sets it.
        is_transactional: whether it belongs to a transaction of the producer.

    Raises:
        TidegaugeError: UNSUPPORTED_COMPRESSION_TYPE, or INVALID_RECORD for an empty batch.
    """
    builder = BatchBuilder(compression=compression, is_transactional=is_transactional)
    for record in records:
        one = NewRecord(*record)
        builder.append(one.value, one.key, one.timestamp_ms, one.headers)
    if builder.record_count == 0:
        raise TidegaugeError(ErrorCode.INVALID_RECORD, "a batch holds at least one record")
    data = builder.build(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
    if base_offset == 0 and leader_epoch == NO_LEADER_EPOCH:
        return data
    patched = bytearray(data)
    patch(patched, 0, base_offset, leader_epoch)
    return bytes(patched)


def restamp(batch: bytes, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """Return the same records with another producer id, epoch and sequence."""
    changed = bytearray(batch)
    _PRODUCER.pack_into(changed, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(changed, _CRC_POSITION, crc32c(memoryview(changed)[CRC_START:]))
    return bytes(changed)


def decode_batch(
    buffer: bytes | bytearray | memoryview, header: BatchHeader, from_offset: int = 0, *, check_crc: bool = True
) -> Iterator[Record]:
    """Read the records of one batch, from an offset on.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the CRC does not match or a record is malformed.
    """
    if check_crc and not crc_matches(buffer, header):
        raise TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} does not match its CRC"
        )
    if header.is_control or header.next_offset <= from_offset:
        return
    leader_epoch = header.leader_epoch
    decoded: Any = RecordBatch(memoryview(buffer)[header.position : header.position + header.size_bytes])
    try:
        for record in decoded:
            offset = record.offset
            if offset >= from_offset:
                yield Record(
                    offset,
                    record.timestamp,
                    record.timestamp_type,
                    record.key,
                    record.value,
                    record.headers or (),
                    leader_epoch,
                )
    except _UNREADABLE as problem:
        raise _unreadable(header, problem) from problem


def _unreadable(header: BatchHeader, problem: Exception) -> TidegaugeError:
    return TidegaugeError(
        ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} cannot be read: {problem}"
    )


def decode_rows(
    row: type[Row],
    head: tuple[Any, ...],
    buffer: bytes | bytearray | memoryview,
    header: BatchHeader,
    from_offset: int = 0,
    *,
    check_crc: bool = True,
) -> list[Row]:
    """Return all records of one batch at once, in a third of the
    time.

    The tuples are made without their class's own constructor, and the records below ``from_offset`` are dropped at
    once.

    Raises:
        TidegaugeError: as ``decode_batch``; no record of the batch is returned then.
    """
    if header.is_control or header.next_offset <= from_offset or (check_crc and not crc_matches(buffer, header)):
        return [
            _new(row, (*head, *record)) for record in decode_batch(buffer, header, from_offset, check_crc=check_crc)
        ]
    kind = 1 if header.attributes & LOG_APPEND_TIME_BIT else 0
    tail = header.leader_epoch
    decoded: Any = RecordBatch(memoryview(buffer)[header.position : header.position + header.size_bytes])
    try:
        rows = [
            _new(row, (*head, one.offset, one.timestamp, kind, one.key, one.value, one.headers or (), tail))
            for one in decoded
        ]
    except _UNREADABLE as problem:
        raise _unreadable(header, problem) from problem
    if header.base_offset < from_offset:
        del rows[: bisect_left(rows, from_offset, key=itemgetter(len(head)))]
    return rows


def decode_batches(
    buffer: bytes | bytearray | memoryview, from_offset: int = 0, *, check_crc: bool = True
) -> Iterator[Record]:
    """Read all records at or above an offset from complete batches that follow each other.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a batch is incomplete, malformed or does not match its CRC.
    """
    for header in iterate_headers(buffer):
        yield from decode_batch(buffer, header, from_offset, check_crc=check_crc)
