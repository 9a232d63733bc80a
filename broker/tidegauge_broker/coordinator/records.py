"""The records of __consumer_offsets: keys, values and batches, byte for byte those of Kafka 3.9, or of Kafka 4.

A key or value is its version, an int16, and the fields of that version. Written are key version 1 and value version 3
(version 1 where an offset has an expiration time of its own) for offsets, key version 2 and value version 3 for groups:
the highest that older brokers read (KIP-915). A broker of Kafka 4 writes offsets in value version 4, with the id of
their topic. A record without value is a tombstone.
Source: GroupMetadataManager (offsetCommitKey, offsetCommitValue, groupMetadataKey, groupMetadataValue, readMessageKey);
GroupCoordinatorRecordHelpers.newOffsetCommitRecord.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidegauge.kafka.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.offsets import CommittedOffset
from tidegauge_broker.coordinator.record_codec import UnknownKey, decoded, encoded, version_of

OFFSET_KEY_VERSIONS = range(2)
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
EXPIRING_OFFSET_VERSION = 1
FIRST_FLEXIBLE_VALUE = WITH_TOPIC_ID = 4
VALUE_VERSIONS = range(5)
OFFSETS_BASE_SEQUENCE = 0
"""The base sequence of a batch of commits: Kafka sets one although they have no producer."""
_NO_TIMESTAMP_MS = -1
_Value = TypeVar("_Value", OffsetCommitValue, GroupMetadataValue)


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic_partition: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


def offset_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of a group's offset for a partition."""
    key = OffsetCommitKey(group_id, topic_partition.topic, topic_partition.partition)
    return encoded(key, OFFSET_KEY_VERSIONS[-1])


def offset_value(committed: CommittedOffset, version: int = VALUE_VERSION) -> bytes:
    """Return the value of a committed offset.

    Args:
        committed: the offset.
        version: ``VALUE_VERSION``, or ``WITH_TOPIC_ID``; an offset with an expiration time of its own has another one.
    """
    expires_ms = committed.expire_timestamp_ms
    version = version if expires_ms is None else EXPIRING_OFFSET_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=_NO_TIMESTAMP_MS if expires_ms is None else expires_ms,
        topic_id=committed.topic_id,
    )
    return encoded(value, version, flexible=version >= FIRST_FLEXIBLE_VALUE)


def group_key(group_id: str) -> bytes:
    """Return the key of a group's metadata."""
    return encoded(GroupMetadataKey(group_id), GROUP_KEY_VERSION)


def group_value(value: GroupMetadataValue) -> bytes:
    """Return a group's metadata as it is written."""
    return encoded(value, VALUE_VERSION)


def read_key(key: bytes) -> OffsetKey | GroupKey | UnknownKey:
    """Return what a record's key names.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no key.
    """
    version = version_of(key)
    if version in OFFSET_KEY_VERSIONS:
        offset = decoded(OffsetCommitKey, key, version)
        return OffsetKey(offset.group, TopicPartition(offset.topic, offset.partition))
    if version == GROUP_KEY_VERSION:
        return GroupKey(decoded(GroupMetadataKey, key, version).group)
    return UnknownKey(version)


def read_offset(value: bytes) -> CommittedOffset:
    """Return a committed offset.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no offset of a version that Kafka 3.9 reads.
    """
    read, _ = _read_value(OffsetCommitValue, value)
    expires_ms = None if read.expire_timestamp == _NO_TIMESTAMP_MS else read.expire_timestamp
    return CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, expires_ms, bytes(read.topic_id)
    )


def read_group(value: bytes) -> GroupMetadataValue:
    """Return a group's metadata.

        In version 0 the rebalance timeout of a member is its session timeout.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no group of a version that Kafka 3.9 reads.
    """
    read, version = _read_value(GroupMetadataValue, value)
    if version == 0:
        for member in read.members:
            member.rebalance_timeout = member.session_timeout
    return read


def _read_value(kind: type[_Value], value: bytes) -> tuple[_Value, int]:
    version = version_of(value)
    if version not in VALUE_VERSIONS:
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"{kind.__name__} has the unknown version {version}")
    return decoded(kind, value, version, flexible=version >= FIRST_FLEXIBLE_VALUE), version
