"""Subscriptions and assignments of the classic consumer protocol, as bytes: what a migration reads and writes.

Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment of Kafka's clients, versions 0 to 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_WITH_OWNED, _WITH_GENERATION, _WITH_RACK = 1, 2, 3
_LAST = 3
NamedPartition = tuple[str, int]


class MalformedProtocol(Exception):
    """The bytes are no subscription, or no assignment."""


class Subscription(NamedTuple):
    """A member's subscribed topics, and the partitions that it owns."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned: tuple[NamedPartition, ...]
    rack_id: str | None


class Assigned(NamedTuple):
    """The partitions that a leader has assigned to a member."""

    partitions: tuple[NamedPartition, ...]
    user_data: bytes | None


class _Reader:
    """Reads fields one after the other; a field that ends behind the bytes is malformed."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._text):
            raise MalformedProtocol("a field ends behind the bytes")
        taken = self._text[self._at : self._at + size]
        self._at += size
        return taken

    def short(self) -> int:
        return int(_SHORT.unpack(self._take(2))[0])

    def whole(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def count(self) -> int:
        number = self.whole()
        if not 0 <= number <= len(self._text):
            raise MalformedProtocol(f"{number} items do not fit into {len(self._text)} bytes")
        return number

    def text(self) -> str | None:
        size = self.short()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as problem:
            raise MalformedProtocol("a name is not UTF-8") from problem

    def name(self) -> str:
        found = self.text()
        if found is None:
            raise MalformedProtocol("a topic is null")
        return found

    def data(self) -> bytes | None:
        size = self.whole()
        return None if size < 0 else self._take(size)

    def partitions(self) -> tuple[NamedPartition, ...]:
        found: list[NamedPartition] = []
        for _ in range(self.count()):
            topic = self.name()
            found += [(topic, self.whole()) for _ in range(self.count())]
        return tuple(found)


def read_subscription(metadata: bytes) -> Subscription:
    """Return a subscription, without fields of later versions.

    Raises:
        MalformedProtocol: the bytes are none.
    """
    reader = _Reader(metadata)
    version = _version(reader)
    topics = tuple(reader.name() for _ in range(reader.count()))
    user_data = reader.data()
    owned = reader.partitions() if version >= _WITH_OWNED else ()
    if version >= _WITH_GENERATION:
        reader.whole()
    rack_id = reader.text() if version >= _WITH_RACK else None
    return Subscription(version, topics, user_data, owned, rack_id)


def read_assignment(assignment: bytes) -> Assigned:
    """Return an assignment; empty bytes: the member has none yet.

    Raises:
        MalformedProtocol: the bytes are none.
    """
    if not assignment:
        return Assigned((), None)
    reader = _Reader(assignment)
    _version(reader)
    partitions = reader.partitions()
    return Assigned(partitions, reader.data())


def write_assignment(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """Return the bytes of an assignment, without user data."""
    topics = [(topic.encode(), list(numbers)) for topic, numbers in partitions]
    parts = [_SHORT.pack(version), _INT.pack(len(topics))]
    for topic, numbers in topics:
        parts += [_SHORT.pack(len(topic)), topic, _INT.pack(len(numbers)), *map(_INT.pack, numbers)]
    return b"".join([*parts, _INT.pack(-1)])


def _version(reader: _Reader) -> int:
    version = reader.short()
    if version < 0:
        raise MalformedProtocol(f"its version is {version}")
    return min(version, _LAST)
