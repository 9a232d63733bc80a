"""The records of the metadata log, and their bytes.

A metadata record's value is an unsigned varint 1 (the version of this frame), its type and its version as unsigned
varints, and the message with compact types and tagged fields. Its key is null.
Source: ``org.apache.kafka.server.common.serialization.AbstractApiMessageSerde``; ``MetadataRecordType``; KIP-631.
"""

from __future__ import annotations

import functools
import struct
from importlib import import_module
from typing import Any, NamedTuple

from tidegauge.kafka.apis import snake
from tidegauge.kafka.compiler import MalformedMessage, begin_message, codec, read_uvarint, write_uvarint

FRAME_VERSION = 1


class RecordType(NamedTuple):
    """A type of metadata record.

    Attributes:
        key: its number in the frame.
        message: the name of the message in Kafka's definitions.
        last: the highest version; the lowest is 0.
    """

    key: int
    message: str
    last: int

    @property
    def label(self) -> str:
        """The type's name in Kafka's tools, such as FEATURE_LEVEL_RECORD (MetadataRecordType)."""
        return snake(self.message).upper()


RECORD_TYPES = {
    row[0]: RecordType(*row)
    for row in (
        (0, "RegisterBrokerRecord", 4),
        (1, "UnregisterBrokerRecord", 0),
        (2, "TopicRecord", 0),
        (3, "PartitionRecord", 2),
        (4, "ConfigRecord", 0),
        (5, "PartitionChangeRecord", 2),
        (7, "FenceBrokerRecord", 0),
        (8, "UnfenceBrokerRecord", 0),
        (9, "RemoveTopicRecord", 0),
        (10, "DelegationTokenRecord", 0),
        (11, "UserScramCredentialRecord", 0),
        (12, "FeatureLevelRecord", 0),
        (14, "ClientQuotaRecord", 0),
        (15, "ProducerIdsRecord", 0),
        (17, "BrokerRegistrationChangeRecord", 3),
        (18, "AccessControlEntryRecord", 0),
        (19, "RemoveAccessControlEntryRecord", 0),
        (20, "NoOpRecord", 0),
        (21, "ZkMigrationStateRecord", 0),
        (22, "RemoveUserScramCredentialRecord", 0),
        (23, "BeginTransactionRecord", 0),
        (24, "EndTransactionRecord", 0),
        (25, "AbortTransactionRecord", 0),
        (26, "RemoveDelegationTokenRecord", 0),
        (27, "RegisterControllerRecord", 0),
        (28, "ClearElrRecord", 0),
    )
}


class MetadataRecord(NamedTuple):
    """A message of the metadata log with its type and the version in which it is written."""

    type: RecordType
    version: int
    message: Any


@functools.cache
def record_class(key: int) -> type:
    """Return the message class of a type, importing it on first use."""
    name = RECORD_TYPES[key].message
    found: type = getattr(import_module(f"tidegauge.kafka.metadata_records.{snake(name)}"), name)
    return found


@functools.cache
def _by_message() -> dict[str, RecordType]:
    return {record.message: record for record in RECORD_TYPES.values()}


def encode_record(message: Any, version: int) -> bytes:
    """Return the value of a metadata record.

    Raises:
        KeyError: there is no such type of metadata record.
        ValueError: the message has no such version.
    """
    record = _by_message()[type(message).__name__]
    if not 0 <= version <= record.last:
        raise ValueError(f"{record.message} has no version {version}")
    functions = codec(message.__class__, version, True)
    assert functions.encode is not None
    frame = write_uvarint(FRAME_VERSION) + write_uvarint(record.key) + write_uvarint(version)
    return frame + functions.encode(message)


def decode_record(value: bytes | None) -> MetadataRecord:
    """Return the message in a metadata record's value.

    Raises:
        MalformedMessage: the frame, type or version is unknown, the value ends too early, or bytes are left behind the
            message.
    """
    if value is None:
        raise MalformedMessage("a metadata record has a value")
    buffer = memoryview(value)
    begin_message()
    try:
        frame_version, at = _uvarint(buffer, 0)
        if frame_version != FRAME_VERSION:
            raise MalformedMessage(
                f"Could not deserialize metadata record due to unknown frame version {frame_version}"
                f"(only frame version {FRAME_VERSION} is supported)"
            )
        key, at = _uvarint(buffer, at)
        version, at = _uvarint(buffer, at)
        record = RECORD_TYPES.get(key)
        if record is None:
            raise MalformedMessage(f"Unknown metadata id {key}")
        if version > record.last:
            raise MalformedMessage(f"{record.message} has versions 0 to {record.last}, not {version}")
        message, end = codec(record_class(key), version, True).decode(buffer, at)
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise MalformedMessage(f"not a metadata record: {problem}") from problem
    if end != len(value):
        raise MalformedMessage(f"Found {len(value) - end} byte(s) of garbage after {record.message}")
    return MetadataRecord(record, version, message)


def _uvarint(buffer: memoryview, at: int) -> tuple[int, int]:
    return read_uvarint(buffer, buffer[at], at + 1) if buffer[at] > 127 else (buffer[at], at + 1)
