"""The control records of the metadata log, and their bytes.

A control record's key is a version (int16, 0) and a type (int16). Its value is the message alone; the message's first
field, ``version``, is also the version of its schema.
Source: ``org.apache.kafka.common.record.ControlRecordType`` and ``ControlRecordUtils``; KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

import functools
import struct
from importlib import import_module
from typing import Any, NamedTuple

from tidegauge.kafka.apis import snake
from tidegauge.kafka.compiler import MalformedMessage, begin_message, codec

LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6


class ControlType(NamedTuple):
    """A type of control record.

    Attributes:
        number: in the record's key.
        message: the name of the message in Kafka's definitions.
        last: the highest version of the message.
    """

    number: int
    message: str
    last: int


CONTROL_TYPES = {
    row[0]: ControlType(*row)
    for row in (
        (LEADER_CHANGE, "LeaderChangeMessage", 1),
        (SNAPSHOT_HEADER, "SnapshotHeaderRecord", 0),
        (SNAPSHOT_FOOTER, "SnapshotFooterRecord", 0),
        (KRAFT_VERSION, "KRaftVersionRecord", 0),
        (KRAFT_VOTERS, "VotersRecord", 0),
    )
}
"""The types that only the metadata log has; 0 and 1 are the markers of transactions."""

_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")


@functools.cache
def control_class(number: int) -> type:
    """Return the message class of a type, importing it on first use."""
    name = CONTROL_TYPES[number].message
    found: type = getattr(import_module(f"tidegauge.kafka.kraft.control_messages.{snake(name)}"), name)
    return found


def control_number(key: bytes | None) -> int:
    """Return the type in a control record's key, known or not (ControlRecordType.parseTypeId).

    Raises:
        MalformedMessage: the key is too short.
    """
    if key is None or len(key) < _KEY.size:
        raise MalformedMessage("the key of a control record has four bytes: a version and a type")
    return int(_KEY.unpack_from(key)[1])


def encode_control(message: Any) -> tuple[bytes, bytes]:
    """Return a control record's key and value; ``message.version`` selects the version.

    Raises:
        KeyError: there is no such type of control record.
        ValueError: the message has no such version.
    """
    control = _by_message()[type(message).__name__]
    if not 0 <= message.version <= control.last:
        raise ValueError(f"{control.message} has no version {message.version}")
    functions = codec(message.__class__, message.version, True)
    assert functions.encode is not None
    return _KEY.pack(0, control.number), functions.encode(message)


@functools.cache
def _by_message() -> dict[str, ControlType]:
    return {control.message: control for control in CONTROL_TYPES.values()}


def decode_control(key: bytes | None, value: bytes | None) -> Any:
    """Return a control record's message; bytes behind it are ignored, as in Kafka.

    Raises:
        MalformedMessage: the type or version is unknown, or the value ends too early.
    """
    number = control_number(key)
    control = CONTROL_TYPES.get(number)
    if control is None:
        raise MalformedMessage(f"control records of type {number} are unknown in the metadata log")
    if value is None or len(value) < _VERSION.size:
        raise MalformedMessage(f"the value of a {control.message} begins with a version of two bytes")
    (version,) = _VERSION.unpack_from(value)
    if not 0 <= version <= control.last:
        raise MalformedMessage(f"{control.message} has versions 0 to {control.last}, not {version}")
    begin_message()
    try:
        message, end = codec(control_class(number), version, True).decode(memoryview(value), 0)
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise MalformedMessage(f"not a {control.message}: {problem}") from problem
    if end > len(value):
        raise MalformedMessage(f"a {control.message} ends behind its record")
    return message
