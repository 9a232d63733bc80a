"""The bytes that members of a consumer group exchange through their coordinator: subscriptions and assignments. Pure.

Both are written in version 3, as by Kafka's consumer since 3.5, and read in every version: a newer one only appends
fields. Source: ConsumerProtocol, ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition, partitions_by_topic

PROTOCOL_TYPE = "consumer"
VERSION = 3
NO_GENERATION = -1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's message to the leader of its group.

    Attributes:
        topics: the topics that it wants to read.
        user_data: data of its assignor; None: there is none.
        owned: the partitions that it has, from version 1 on (KIP-429).
        generation: the generation in which it got them, from version 2 on; -1: unknown.
        rack: its rack, from version 3 on (KIP-881); None: unknown.
        group_instance_id: of a static member; not part of the bytes.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    group_instance_id: str | None = None


def encode_subscription(one: MemberSubscription) -> bytes:
    """Return the metadata of a JoinGroup."""
    topics = b"".join(map(_string, sorted(one.topics)))
    return b"".join(
        (
            _INT16.pack(VERSION),
            _INT32.pack(len(one.topics)),
            topics,
            _nullable_bytes(one.user_data),
            _partitions(one.owned),
            _INT32.pack(one.generation),
            _INT16.pack(-1) if one.rack is None else _string(one.rack),
        )
    )


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> MemberSubscription:
    """Read a member's metadata.

    Raises:
        TidegaugeError: INCONSISTENT_GROUP_PROTOCOL, the bytes are no subscription.
    """
    reader = _Reader(data, "subscription")
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 else None
    return MemberSubscription(topics, user_data, owned, generation, rack, group_instance_id)


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    """Return one member's assignment, as the leader puts it into its SyncGroup."""
    return _INT16.pack(VERSION) + _partitions(partitions) + _nullable_bytes(user_data)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Read an assignment; empty bytes, which a member without one gets, are an empty one.

    Raises:
        TidegaugeError: INCONSISTENT_GROUP_PROTOCOL, the bytes are no assignment.
    """
    if not data:
        return ()
    reader = _Reader(data, "assignment")
    reader.int16()
    return reader.partitions()


class _Reader:
    """Reads fields one after the other; bytes that end early or a negative length fail."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def int16(self) -> int:
        value: int = _INT16.unpack(self._take(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def count(self) -> int:
        """Return the length of an array, bounded by the remaining bytes."""
        value = self.int32()
        if not 0 <= value <= len(self._data) - self._at:
            raise self._unreadable()
        return value

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise self._unreadable()
        return value

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise self._unreadable() from None

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            found += (TopicPartition(topic, self.int32()) for _ in range(self.count()))
        return tuple(found)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise self._unreadable()
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _unreadable(self) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"A {self._what} of the group's protocol cannot be read at byte {self._at} of {len(self._data)}",
        )


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _nullable_bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic = partitions_by_topic(partitions)
    parts = [_INT32.pack(len(by_topic))]
    for topic, found in by_topic.items():
        parts += (_string(topic), struct.pack(f">i{len(found)}i", len(found), *found))
    return b"".join(parts)
