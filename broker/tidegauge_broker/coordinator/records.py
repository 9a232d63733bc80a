"""The records of __consumer_offsets: keys, values and batches, byte for byte those of Kafka 3.9.

A key or value is its version, an int16, and the fields of that version. Written are key version 1 and value version 3
(version 1 where an offset has an expiration time of its own) for offsets, key version 2 and value version 3 for groups:
the highest that older brokers read (KIP-915). A record without value is a tombstone.
Source: GroupMetadataManager (offsetCommitKey, offsetCommitValue, groupMetadataKey, groupMetadataValue, readMessageKey).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from aiokafka.record.default_records import (  # pyright: ignore[reportMissingTypeStubs]
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import MalformedMessage, begin_message, codec
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidegauge.kafka.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, Buffer, crc_matches, iterate_headers
from tidegauge.record_inflation import inflated
from tidegauge_broker.coordinator.offsets import CommittedOffset

OFFSET_KEY_VERSIONS = range(2)
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
EXPIRING_OFFSET_VERSION = 1
FIRST_FLEXIBLE_VALUE = 4
VALUE_VERSIONS = range(5)
OFFSETS_BASE_SEQUENCE = 0
"""Of a batch of commits: Kafka gives them a sequence although they have no producer."""
GROUP_BASE_SEQUENCE = -1
_NO_TIMESTAMP_MS = -1
_VERSION = struct.Struct(">h")
_UNLIMITED_BYTES = 2**31 - 1
_MAGIC = 2
_Value = TypeVar("_Value", OffsetCommitKey, GroupMetadataKey, OffsetCommitValue, GroupMetadataValue)


class Record(NamedTuple):
    """A key, and a value or None for a tombstone."""

    key: bytes
    value: bytes | None


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic_partition: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


class UnknownKey(NamedTuple):
    """A key of a version that Kafka 3.9 does not write, left behind by a newer broker; it is skipped (KIP-915)."""

    version: int


class LoadedBatch(NamedTuple):
    """A batch and its records. ``first_offset`` is that of its first record, None where compaction left none."""

    header: BatchHeader
    records: Sequence[tuple[bytes | None, bytes | None]]
    first_offset: int | None


def offset_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of a group's offset for a partition."""
    key = OffsetCommitKey(group_id, topic_partition.topic, topic_partition.partition)
    return _encoded(key, OFFSET_KEY_VERSIONS[-1])


def offset_value(committed: CommittedOffset) -> bytes:
    """Return the value of a committed offset."""
    expires_ms = committed.expire_timestamp_ms
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=_NO_TIMESTAMP_MS if expires_ms is None else expires_ms,
    )
    return _encoded(value, VALUE_VERSION if expires_ms is None else EXPIRING_OFFSET_VERSION)


def group_key(group_id: str) -> bytes:
    """Return the key of a group's metadata."""
    return _encoded(GroupMetadataKey(group_id), GROUP_KEY_VERSION)


def group_value(value: GroupMetadataValue) -> bytes:
    """Return a group's metadata as it is written."""
    return _encoded(value, VALUE_VERSION)


def read_key(key: bytes) -> OffsetKey | GroupKey | UnknownKey:
    """Return what a record's key names.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no key.
    """
    version = _version_of(key)
    if version in OFFSET_KEY_VERSIONS:
        offset = _decoded(OffsetCommitKey, key, version, flexible=False)
        return OffsetKey(offset.group, TopicPartition(offset.topic, offset.partition))
    if version == GROUP_KEY_VERSION:
        return GroupKey(_decoded(GroupMetadataKey, key, version, flexible=False).group)
    return UnknownKey(version)


def read_offset(value: bytes) -> CommittedOffset:
    """Return a committed offset.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no offset of a version that Kafka 3.9 reads.
    """
    read, _ = _read_value(OffsetCommitValue, value)
    expires_ms = None if read.expire_timestamp == _NO_TIMESTAMP_MS else read.expire_timestamp
    return CommittedOffset(read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, expires_ms)


def read_group(value: bytes) -> GroupMetadataValue:
    """Return a group's metadata; in version 0 the rebalance timeout of a member is its session timeout.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no group of a version that Kafka 3.9 reads.
    """
    read, version = _read_value(GroupMetadataValue, value)
    if version == 0:
        for member in read.members:
            member.rebalance_timeout = member.session_timeout
    return read


def batch_of(records: Iterable[Record], now_ms: int, base_sequence: int, compression: int) -> bytes:
    """Return a batch of magic 2 with these records, all of one time.

    Args:
        records: at least one.
        now_ms: their timestamp (CreateTime).
        base_sequence: OFFSETS_BASE_SEQUENCE or GROUP_BASE_SEQUENCE.
        compression: number of the codec (offsets.topic.compression.codec).
    """
    builder: Any = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
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
            decoded: Any = list(DefaultRecordBatch(memoryview(whole)))
        except Exception as problem:  # whatever the codecs raise
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The records can't be decoded: {problem}") from problem
        yield LoadedBatch(
            header, [(record.key, record.value) for record in decoded], decoded[0].offset if decoded else None
        )


def _encoded(message: Any, version: int) -> bytes:
    encode = codec(message.__class__, version, version >= FIRST_FLEXIBLE_VALUE).encode
    assert encode is not None, "only values with record batches inside have no such function"
    return _VERSION.pack(version) + encode(message)


def _version_of(buffer: bytes) -> int:
    if len(buffer) < _VERSION.size:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "a key or value of __consumer_offsets has no version")
    (version,) = _VERSION.unpack_from(buffer)
    return int(version)


def _read_value(kind: type[_Value], value: bytes) -> tuple[_Value, int]:
    version = _version_of(value)
    if version not in VALUE_VERSIONS:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"{kind.__name__} has the unknown version {version}")
    return _decoded(kind, value, version, flexible=version >= FIRST_FLEXIBLE_VALUE), version


def _decoded(kind: type[_Value], buffer: bytes, version: int, *, flexible: bool) -> _Value:
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
