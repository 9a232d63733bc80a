"""Compiles one decoder and one encoder per message and version: straight-line functions, made on first use.

A generic codec that walks a schema for each message costs several times as much. Here the walk happens once: fields of
a fixed size that follow one another share one ``struct`` call, a length below 128 takes no loop, a value without record
batches is encoded by one expression, and record batches remain views of the frame. Reading is bounded: an array that
announces more items than the remaining bytes can hold, or more than ``MAX_ITEMS`` in one request (``MAX_LARGE_ITEMS``
in a response, and between controller and brokers), is rejected before anything is allocated for it.
Source: KIP-482 (compact types, tagged fields); https://kafka.apache.org/protocol.html (primitive types).
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tidegauge.kafka.fields import FIXED, MAX_STRING_BYTES, WIRE, Wire

MAX_ITEMS = 100_000
"""Maximum number of array items in one request: bounds the memory that a small frame of empty items can take, and the
time for which a request over many partitions keeps the event loop from the others."""
MAX_LARGE_ITEMS = 2_000_000
"""The same for responses, and for the requests of the control plane, in which a controller names all partitions that a
broker must know: 285,000 of three replicas. Kafka limits them by the size of the frame alone, and so never splits them:
a broker that rejects one gets it again for ever (ControllerChannelManager's RequestSendThread), and the response to a
CreateTopics of 3,100 topics has 100,000 settings."""
_UVARINT_BYTES = 5

Append = Callable[[Any], None]


class MalformedMessage(Exception):
    """The bytes are not a message of this kind and version."""


class Codec(NamedTuple):
    """The functions for one struct in one version.

    Attributes:
        decode: of a buffer and an offset, gives the value and the offset behind it; raises ``MalformedMessage``,
            IndexError, struct.error or UnicodeDecodeError.
        encode: of a value, gives its bytes; None if it holds record batches.
        encode_parts: for a value with record batches, of that and a function that takes the next buffer: the batches
            are handed on as they are.
        min_bytes: what an encoded value takes at least.
    """

    decode: Callable[[memoryview, int], tuple[Any, int]]
    encode: Callable[[Any], bytes] | None
    encode_parts: Callable[[Any, Append], None] | None
    min_bytes: int


_TOO_MANY = "an array of %d items, more than the message holds or than a message may have"
_items_left = [0]


def begin_message(*, is_large: bool = False) -> None:
    """Allow the message that is decoded next ``MAX_ITEMS`` array items, or ``MAX_LARGE_ITEMS``."""
    _items_left[0] = MAX_LARGE_ITEMS if is_large else MAX_ITEMS


def items_left() -> int:
    """Return the remaining number of array items that the current message may have."""
    return _items_left[0]


def resume_message(items: int) -> None:
    """Allow this many further array items to a message whose decoding continues: others were decoded meanwhile."""
    _items_left[0] = items


def read_uvarint(buffer: memoryview, first: int, offset: int) -> tuple[int, int]:
    """Return the unsigned varint with this first byte, and the offset behind it."""
    value, shift = first & 127, 7
    for _ in range(_UVARINT_BYTES - 1):
        byte = buffer[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
    raise MalformedMessage("a varint is longer than five bytes")


_SHORT = [bytes([value]) for value in range(128)]
_STRING_LENGTH = struct.Struct(">h")


def write_uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    if value < 128:
        return _SHORT[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _too_long(encoded: bytes) -> ValueError:
    return ValueError(f"a string of {len(encoded)} bytes can't be written: Kafka's have at most {MAX_STRING_BYTES}")


def _compact_string(text: str) -> bytes:
    encoded = text.encode()
    length = len(encoded) + 1
    if length > MAX_STRING_BYTES + 1:
        raise _too_long(encoded)
    return (_SHORT[length] if length < 128 else write_uvarint(length)) + encoded


def _short_string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise _too_long(encoded)
    return _STRING_LENGTH.pack(len(encoded)) + encoded


def _tagged_field(tag: bytes, value: bytes) -> bytes:
    """Return a tagged field: its tag, its size, its value."""
    length = len(value)
    return tag + (_SHORT[length] if length < 128 else write_uvarint(length)) + value


def _reject(reason: str) -> None:
    raise MalformedMessage(reason)


@functools.cache
def codec(struct_class: type, version: int, flexible: bool) -> Codec:
    """Return a struct's codec; ``flexible``: with compact types and tagged fields (KIP-482)."""
    return Compiler(struct_class, version, flexible).compile()


class Compiler:
    """One struct in one version. In the generated code ``b`` is the buffer, ``o`` the offset, ``w`` takes parts."""

    def __init__(self, struct_class: type, version: int, flexible: bool) -> None:
        self._class = struct_class
        self._version = version
        self._flexible = flexible
        self._fields = dataclasses.fields(struct_class)
        wires = [(field, field.metadata[WIRE]) for field in self._fields]
        present = [(field, wire) for field, wire in wires if version in wire.versions]
        self._placed = [(field.name, wire) for field, wire in present if wire.tag is None]
        self._tagged = sorted(
            ((wire.tag, field.name, wire, field.default) for field, wire in present if wire.tag is not None),
            key=lambda row: row[0],
        )
        self._names: dict[str, Any] = {
            "Struct": struct_class,
            "uvarint": read_uvarint,
            "varint_bytes": write_uvarint,
            "SHORT": _SHORT,
            "compact_string": _compact_string,
            "short_string": _short_string,
            "tagged": _tagged_field,
            "left": _items_left,
            "reject": _reject,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
        }

    def compile(self) -> Codec:
        """Write both functions and have Python compile them."""
        source = "\n".join([*self._decoder(), *self._encoder()])
        where = f"<codec of {self._class.__module__}.{self._class.__name__} v{self._version}>"
        exec(compile(source, where, "exec"), self._names)  # noqa: S102 - the source is written here, from our own table
        names = self._names
        return Codec(names["decode"], names.get("encode"), names.get("encode_parts"), self._min_bytes())

    def _min_bytes(self) -> int:
        size = sum(self._min_bytes_of(wire) for _, wire in self._placed)
        return max(1, size + int(self._flexible))

    def _min_bytes_of(self, wire: Wire) -> int:
        if wire.kind in FIXED:
            return struct.calcsize(">" + FIXED[wire.kind])
        if wire.kind == "struct":
            return 1 if self._version in wire.nullable else self._codec_of(wire).min_bytes
        if self._flexible:
            return 1
        return 2 if wire.kind == "string" else 4

    def _codec_of(self, wire: Wire) -> Codec:
        assert isinstance(wire.item, type)
        return codec(wire.item, self._version, self._flexible)

    def _struct(self, characters: str) -> str:
        """Names of the functions of one ``struct.Struct`` are ``u_`` and ``p_`` with what this returns."""
        name = characters.replace("?", "o")
        compiled = struct.Struct(">" + characters)
        self._names["u_" + name], self._names["p_" + name] = compiled.unpack_from, compiled.pack
        return name

    def _nested(self, wire: Wire) -> str:
        """Return a nested struct's name; ``d_`` and ``e_`` before it are its functions."""
        assert isinstance(wire.item, type)
        name = wire.item.__name__
        nested = self._codec_of(wire)
        self._names["d_" + name] = nested.decode
        self._names["e_" + name] = nested.encode or nested.encode_parts
        return name

    # Decoding

    def _read_nested(self, wire: Wire) -> str:
        """Return an expression for a nested struct and the offset behind it."""
        return f"d_{self._nested(wire)}(b,o)"

    def _decoder(self) -> list[str]:
        lines = ["def decode(b,o):"]
        run: list[tuple[str, str]] = []
        for name, wire in self._placed:
            if wire.kind in FIXED:
                run.append((name, FIXED[wire.kind]))
                continue
            lines += [*self._read_run(run), *self._read(wire, name, " ")]
            run = []
        lines += self._read_run(run)
        if self._flexible:
            lines += self._read_tagged()
        present = {name for name, _ in self._placed} | {name for _, name, _, _ in self._tagged}
        values = [f"{field.name}_" if field.name in present else repr(field.default) for field in self._fields]
        return [*lines, f" return Struct({','.join(values)}),o"]

    def _read_run(self, run: list[tuple[str, str]]) -> list[str]:
        if not run:
            return []
        characters = "".join(character for _, character in run)
        targets = "".join(f"{name}_," for name, _ in run)
        return [f" {targets}=u_{self._struct(characters)}(b,o);o+={struct.calcsize('>' + characters)}"]

    def _read_length(self, character: str, indent: str) -> list[str]:
        """Set ``n``; -1 is null."""
        if self._flexible:
            return [f"{indent}n=b[o];o+=1", f"{indent}if n>127:n,o=uvarint(b,n,o)", f"{indent}n-=1"]
        return [f"{indent}n,=u_{self._struct(character)}(b,o);o+={struct.calcsize('>' + character)}"]

    def _read(self, wire: Wire, name: str, indent: str) -> list[str]:
        target = f"{name}_"
        if wire.kind in FIXED:
            character = FIXED[wire.kind]
            size = struct.calcsize(">" + character)
            return [f"{indent}{target},=u_{self._struct(character)}(b,o);o+={size}"]
        may_be_null = self._version in wire.nullable
        if wire.kind == "struct":
            read = self._read_nested(wire)
            if not may_be_null:
                return [f"{indent}{target},o={read}"]
            return [f"{indent}n=b[o];o+=1", f"{indent}{target}=None", f"{indent}if n==1:{target},o={read}"]
        lines = self._read_length("h" if wire.kind == "string" else "i", indent)
        null = f"{target}=None" if may_be_null else f"reject('{name} is null')"
        lines += [f"{indent}if n<0:{null}", f"{indent}else:"]
        inner = indent + " "
        if wire.kind == "array":
            return lines + self._read_items(wire, target, inner)
        if wire.kind == "string" and self._flexible:
            lines.append(f"{inner}if n>{MAX_STRING_BYTES}:reject('{name} is a string of more bytes than an int16')")
        expression = {"string": "str(b[o:o+n],'utf8')", "bytes": "bytes(b[o:o+n])", "records": "b[o:o+n]"}[wire.kind]
        return [*lines, f"{inner}{target}={expression};o+=n"]

    def _read_items(self, wire: Wire, target: str, indent: str) -> list[str]:
        item = _item_of(wire)
        bound = f"{indent}if n*{self._min_bytes_of(item)}>len(b)-o or n>left[0]:reject({_TOO_MANY!r}%n)"
        lines = [bound, f"{indent}left[0]-=n"]
        if item.kind in FIXED and item.kind != "uuid":
            character = FIXED[item.kind]
            size = struct.calcsize(">" + character)
            return [*lines, f"{indent}{target}=unpack_from('>%d{character}'%n,b,o);o+={size}*n"]
        lines += [f"{indent}{target}=l=[]", f"{indent}for _ in range(n):"]
        lines += self._read(item, "z", indent + " ")
        return [*lines, f"{indent} l.append(z_)"]

    def _read_tagged(self) -> list[str]:
        """Tagged fields come in any number; unknown ones are skipped (KIP-482)."""
        lines = [f" {name}_={default!r}" for _, name, _, default in self._tagged]
        lines += [" n=b[o];o+=1", " if n>127:n,o=uvarint(b,n,o)", " for _ in range(n):"]
        lines += ["  t=b[o];o+=1", "  if t>127:t,o=uvarint(b,t,o)"]
        lines += ["  n=b[o];o+=1", "  if n>127:n,o=uvarint(b,n,o)", "  end=o+n"]
        for index, (tag, name, wire, _) in enumerate(self._tagged):
            lines += [f"  {'el' if index else ''}if t=={tag}:", *self._read(wire, name, "   ")]
        # A field that reads beyond its size could have the rest of the frame parsed once per tag.
        return [*lines, "  if o>end or end>len(b):reject('a tagged field and its size differ')", "  o=end"]

    # Encoding

    def _encoder(self) -> list[str]:
        """Return the source of ``encode`` (one expression), or ``encode_parts`` for record batches."""
        lines: list[str] = []
        expressions: list[str] = []
        run: list[tuple[str, str]] = []
        for name, wire in self._placed:
            if wire.kind in FIXED:
                run.append((name, FIXED[wire.kind]))
                continue
            expressions += self._write_run(run)
            run = []
            lines.append(f" {name}_=x.{name}")
            if self._holds(wire):
                lines += self._write_parts(wire, f"{name}_", expressions)
                expressions = []
            else:
                expressions.append(self._written(wire, f"{name}_"))
        expressions += self._write_run(run)
        if self._flexible:
            lines += self._write_tagged()
            # There are as many tagged fields as a struct has at most: fewer than 128.
            expressions.append("SHORT[len(tags)]+b''.join(tags)" if self._tagged else "b'\\0'")
        joined = "+".join(expressions)
        if not self._holds_records:
            nothing = "b''"
            return ["def encode(x):", *lines, f" return {joined or nothing}"]
        return ["def encode_parts(x,w):", *lines, *([f" w({joined})"] if joined else [])]

    @property
    def _holds_records(self) -> bool:
        return any(self._holds(wire) for _, wire in self._placed)

    def _holds(self, wire: Wire) -> bool:
        """Whether there are record batches in a field."""
        if isinstance(wire.item, type):
            return self._codec_of(wire).encode is None
        return wire.kind == "records"

    def _write_run(self, run: list[tuple[str, str]]) -> list[str]:
        if not run:
            return []
        characters = "".join(character for _, character in run)
        return [f"p_{self._struct(characters)}({','.join(f'x.{name}' for name, _ in run)})"]

    def _length(self, character: str, expression: str) -> str:
        """Return an expression for the bytes of a length."""
        if self._flexible:
            return f"(SHORT[q] if (q:={expression}+1)<128 else varint_bytes(q))"
        return f"p_{self._struct(character)}({expression})"

    def _written(self, wire: Wire, value: str) -> str:
        """Return an expression for the bytes of a value without record batches."""
        if wire.kind in FIXED:
            return f"p_{self._struct(FIXED[wire.kind])}({value})"
        may_be_null = self._version in wire.nullable
        if wire.kind == "struct":
            written = f"e_{self._nested(wire)}({value})"
            return f"(b'\\xff' if {value} is None else b'\\1'+{written})" if may_be_null else written
        length = functools.partial(self._length, "h" if wire.kind == "string" else "i")
        if wire.kind == "string":
            written = f"{'compact' if self._flexible else 'short'}_string({value})"
        elif wire.kind == "bytes":
            written = f"{length(f'len({value})')}+{value}"
        else:
            item = _item_of(wire)
            if item.kind in FIXED and item.kind != "uuid":
                items = f"pack('>%d{FIXED[item.kind]}'%len({value}),*{value})"
            else:
                items = f"b''.join([{self._written(item, 'z')} for z in {value}])"
            written = f"{length(f'len({value})')}+{items}"
        return f"({length('-1')} if {value} is None else {written})" if may_be_null else written

    def _write_parts(self, wire: Wire, value: str, before: list[str]) -> list[str]:
        """Write record batches, or an array of structs with some, behind the bytes of ``before``."""
        length = functools.partial(self._length, "i")
        lines = []
        indent = " "
        if self._version in wire.nullable:
            lines += [f" if {value} is None:w({'+'.join([*before, length('-1')])})", " else:"]
            indent = "  "
        elif wire.kind == "records":
            lines.append(f" if {value} is None:{value}=b''")
        size = f"sum(map(len,{value})) if type({value}) is list else len({value})"
        lines.append(f"{indent}n={size if wire.kind == 'records' else f'len({value})'}")
        lines.append(f"{indent}w({'+'.join([*before, length('n')])})")
        if wire.kind == "records":
            return [
                *lines,
                f"{indent}if type({value}) is list:",
                f"{indent} for z in {value}:w(z)",
                f"{indent}elif n:w({value})",
            ]
        assert wire.kind == "array", "record batches are in arrays of topics and partitions"
        return [*lines, f"{indent}for z in {value}:{self._write_item(wire)}"]

    def _write_item(self, wire: Wire) -> str:
        """Return a statement that writes a struct ``z`` of an array."""
        return f"e_{self._nested(wire)}(z,w)"

    def _write_tagged(self) -> list[str]:
        """Return the source that writes tagged fields in the order of tags.

        The default of a struct that may be null is an empty one, so that null is written, as a byte of its own
        (MessageDataGenerator).
        """
        if not self._tagged:
            return []
        lines = [" tags=[]"]
        for tag, name, wire, default in self._tagged:
            is_set = "y" if default == () else "y is not None" if default is None else f"y!={default!r}"
            written = self._written(wire, "y")
            if wire.kind == "struct" and self._version in wire.nullable:
                is_set, written = "1", f"(b'\\0' if y is None else b'\\1'+e_{self._nested(wire)}(y))"
            lines += [
                f" y=x.{name}",
                f" if {is_set}:tags.append(tagged({write_uvarint(tag)!r},{written}))",
            ]
        return lines


def _item_of(wire: Wire) -> Wire:
    """Return an array's item as a field of its own."""
    if isinstance(wire.item, str):
        return Wire(wire.item)
    return Wire("struct", item=wire.item)
