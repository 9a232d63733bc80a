"""The vocabulary of ``tidegauge.kafka.messages``: what a field is on the wire, and in which versions.

Each function is a dataclass field specifier. Versions are written as in Kafka's message definitions:
``"3+"``, ``"0-4"``, ``"2"``. A field outside the version that is decoded gets its default; encoding leaves it out.
Source: the README of ``clients/src/main/resources/common/message`` in Apache Kafka; KIP-482 (tagged fields).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_STRING_BYTES = 2**15 - 1
"""Limit of a string, with compact types too: Kafka's generated classes read and write no longer ones."""
NIL_UUID = bytes(16)
"""Kafka's ``Uuid.ZERO_UUID``: no topic id."""
WIRE = "wire"
"""Key of a dataclass field's metadata under which its ``Wire`` is stored."""


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def of(cls, text: str) -> Versions:
        """Parse ``"3+"``, ``"0-4"`` or ``"2"``; ``""`` is no version at all."""
        if not text:
            return cls(0, -1)
        first, separator, last = text.rstrip("+").partition("-")
        if text.endswith("+"):
            return cls(int(first), 2**15 - 1)
        return cls(int(first), int(last if separator else first))


class Wire(NamedTuple):
    """A field in its form on the wire.

    Attributes:
        kind: a name of ``FIXED``, or ``string``, ``bytes``, ``records``, ``array``, ``struct``.
        versions: in which the field exists.
        nullable: in which its value may be null.
        tag: number of a tagged field; None for a field that has a fixed place.
        item: a struct's class; of an array the class or the kind of its items.
    """

    kind: str
    versions: Versions = Versions(0, 2**15 - 1)
    nullable: Versions = Versions(0, -1)
    tag: int | None = None
    item: type | str | None = None


FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kinds of a fixed size, as format characters of ``struct``."""


def _field(
    kind: str, versions: str, nullable: str, tag: int | None, default: Any, item: type | str | None = None
) -> Any:
    wire = Wire(kind, Versions.of(versions), Versions.of(nullable), tag, item)
    return dataclasses.field(default=default, metadata={WIRE: wire})


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> Any:
    """Return the field of a boolean: a byte, 0 or 1."""
    return _field("bool", versions, "", tag, default)


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Return the field of a signed byte."""
    return _field("int8", versions, "", tag, default)


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Return the field of a signed integer of two bytes."""
    return _field("int16", versions, "", tag, default)


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Return the field of an unsigned integer of two bytes."""
    return _field("uint16", versions, "", tag, default)


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Return the field of a signed integer of four bytes."""
    return _field("int32", versions, "", tag, default)


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Return the field of a signed integer of eight bytes."""
    return _field("int64", versions, "", tag, default)


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> Any:
    """Return the field of an IEEE 754 double."""
    return _field("float64", versions, "", tag, default)


def uuid(versions: str = "0+", *, tag: int | None = None) -> Any:
    """Sixteen bytes; ``NIL_UUID`` if there is none."""
    return _field("uuid", versions, "", tag, NIL_UUID)


def string(versions: str = "0+", *, nullable: str = "", default: str | None = "", tag: int | None = None) -> Any:
    """UTF-8 behind its length in bytes."""
    return _field("string", versions, nullable, tag, default)


def binary(versions: str = "0+", *, nullable: str = "", default: bytes | None = b"", tag: int | None = None) -> Any:
    """Bytes behind their length; decoding copies them out of the frame."""
    return _field("bytes", versions, nullable, tag, default)


def records(versions: str = "0+", *, nullable: str = "") -> Any:
    """Record batches behind their length in bytes: decoding gives a view of the frame, encoding takes a list too."""
    return _field("records", versions, nullable, None, b"")


def array(
    item: type | str,
    versions: str = "0+",
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int | None = None,
) -> Any:
    """Items behind their number."""
    return _field("array", versions, nullable, tag, default, item)


def struct(item: type, versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> Any:
    """Return a nested message's field; None: null, or absent if tagged."""
    return _field("struct", versions, nullable, tag, None, item)


@functools.cache
def wires_of(kind: type) -> Mapping[str, Wire]:
    """Return each field's form on the wire, by name, in order."""
    return {field.name: field.metadata[WIRE] for field in dataclasses.fields(kind)}
