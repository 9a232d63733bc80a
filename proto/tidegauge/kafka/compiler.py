"""Compiles one decoder and one encoder per message and version: straight-line functions, made on first use.

A generic codec that walks a schema for each message costs several times as much. Here the walk happens once: fields of
a fixed size that follow one another share one ``struct`` call, a length below 128 takes no loop, and record batches
remain views of the frame. Reading is bounded: an array that announces more items than the remaining bytes can hold, or
more than ``MAX_ITEMS`` in one message, is rejected before anything is allocated for it.
Source: KIP-482 (compact types, tagged fields); https://kafka.apache.org/protocol.html (primitive types).
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tidegauge.kafka.fields import FIXED, WIRE, Wire

MAX_ITEMS = 500_000
"""Maximum number of array items in one message: bounds the memory that a small frame of empty items can take."""
_UVARINT_BYTES = 5

Append = Callable[[Any], None]


class MalformedMessage(Exception):
    """The bytes are not a message of this kind and version."""


class Codec(NamedTuple):
    """The functions for one struct in one version.

    Attributes:
        decode: of a buffer and an offset, gives the value and the offset behind it; raises ``MalformedMessage``,
            IndexError, struct.error or UnicodeDecodeError.
        encode: of a value and a function that takes the next buffer.
        min_bytes: what an encoded value takes at least.
    """

    decode: Callable[[memoryview, int], tuple[Any, int]]
    encode: Callable[[Any, Append], None]
    min_bytes: int


_items_left = [0]


def begin_message() -> None:
    """Allow ``MAX_ITEMS`` array items to the message that is decoded next."""
    _items_left[0] = MAX_ITEMS


def read_uvarint(buffer: memoryview, first: int, offset: int) -> tuple[int, int]:
    """Return an unsigned varint whose first byte was read already, and the offset behind it."""
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


def _reject(reason: str) -> None:
    raise MalformedMessage(reason)


@functools.cache
def codec(struct_class: type, version: int, flexible: bool) -> Codec:
    """Return the codec for a struct; ``flexible``: with compact types and tagged fields (KIP-482)."""
    return _Compiler(struct_class, version, flexible).compile()


class _Compiler:
    """One struct in one version. In the generated code ``b`` is the buffer, ``o`` the offset, ``w`` the writer."""

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
        return Codec(self._names["decode"], self._names["encode"], self._min_bytes())

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
        """Return the name of a nested struct; ``d_`` and ``e_`` before it are its functions."""
        assert isinstance(wire.item, type)
        name = wire.item.__name__
        nested = self._codec_of(wire)
        self._names["d_" + name], self._names["e_" + name] = nested.decode, nested.encode
        return name

    # Decoding

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
            nested = self._nested(wire)
            if not may_be_null:
                return [f"{indent}{target},o=d_{nested}(b,o)"]
            return [f"{indent}n=b[o];o+=1", f"{indent}{target}=None", f"{indent}if n==1:{target},o=d_{nested}(b,o)"]
        lines = self._read_length("h" if wire.kind == "string" else "i", indent)
        null = f"{target}=None" if may_be_null else f"reject('{name} is null')"
        lines += [f"{indent}if n<0:{null}", f"{indent}else:"]
        inner = indent + " "
        if wire.kind == "array":
            return lines + self._read_items(wire, target, inner)
        expression = {"string": "str(b[o:o+n],'utf8')", "bytes": "bytes(b[o:o+n])", "records": "b[o:o+n]"}[wire.kind]
        return [*lines, f"{inner}{target}={expression};o+=n"]

    def _read_items(self, wire: Wire, target: str, indent: str) -> list[str]:
        item = _item_of(wire)
        bound = f"{indent}if n*{self._min_bytes_of(item)}>len(b)-o or n>left[0]:reject('%d items'%n)"
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
        lines = ["def encode(x,w):", " pass"]
        run: list[tuple[str, str]] = []
        for name, wire in self._placed:
            if wire.kind in FIXED:
                run.append((name, FIXED[wire.kind]))
                continue
            lines += [*self._write_run(run), f" y=x.{name}", *self._write(wire, "y", "w", " ")]
            run = []
        lines += self._write_run(run)
        if self._flexible:
            lines += self._write_tagged()
        return lines

    def _write_run(self, run: list[tuple[str, str]]) -> list[str]:
        if not run:
            return []
        characters = "".join(character for _, character in run)
        return [f" w(p_{self._struct(characters)}({','.join(f'x.{name}' for name, _ in run)}))"]

    def _length(self, character: str, expression: str) -> str:
        """Return an expression for the bytes of a length."""
        if self._flexible:
            return f"varint_bytes({expression}+1)"
        return f"p_{self._struct(character)}({expression})"

    def _write(self, wire: Wire, value: str, writer: str, indent: str) -> list[str]:
        if wire.kind in FIXED:
            return [f"{indent}{writer}(p_{self._struct(FIXED[wire.kind])}({value}))"]
        may_be_null = self._version in wire.nullable
        if wire.kind == "struct":
            nested = self._nested(wire)
            if not may_be_null:
                return [f"{indent}e_{nested}({value},{writer})"]
            return [
                f"{indent}if {value} is None:{writer}(b'\\xff')",
                f"{indent}else:{writer}(b'\\1');e_{nested}({value},{writer})",
            ]
        length = functools.partial(self._length, "h" if wire.kind == "string" else "i")
        lines = []
        inner = indent
        if may_be_null:
            lines += [f"{indent}if {value} is None:{writer}({length('-1')})", f"{indent}else:"]
            inner = indent + " "
        elif wire.kind == "records":
            lines.append(f"{indent}if {value} is None:{value}=b''")
        if wire.kind == "string":
            return [*lines, f"{inner}s={value}.encode();{writer}({length('len(s)')}+s)"]
        if wire.kind == "bytes":
            return [*lines, f"{inner}{writer}({length(f'len({value})')});{writer}({value})"]
        if wire.kind == "records":
            many = f"{writer}({length(f'sum(map(len,{value}))')});[{writer}(z) for z in {value}]"
            one = f"{writer}({length(f'len({value})')});{writer}({value})"
            return [*lines, f"{inner}if type({value}) is list:{many}", f"{inner}else:{one}"]
        lines.append(f"{inner}{writer}({length(f'len({value})')})")
        item = _item_of(wire)
        if item.kind in FIXED and item.kind != "uuid":
            return [*lines, f"{inner}{writer}(pack('>%d{FIXED[item.kind]}'%len({value}),*{value}))"]
        return [*lines, f"{inner}for z in {value}:", *self._write(item, "z", writer, inner + " ")]

    def _write_tagged(self) -> list[str]:
        """Fields that have their default are left out; the others stand in the order of their tags."""
        if not self._tagged:
            return [" w(b'\\0')"]
        lines = [" tags=[]"]
        for tag, name, wire, default in self._tagged:
            is_set = "y" if default == () else "y is not None" if default is None else f"y!={default!r}"
            lines += [f" y=x.{name}", f" if {is_set}:", "  part=[];v=part.append"]
            lines += self._write(wire, "y", "v", "  ")
            lines.append(f"  tags.append(({tag},b''.join(part)))")
        write = "for t,s in tags:w(varint_bytes(t)+varint_bytes(len(s))+s)"
        return [*lines, " w(varint_bytes(len(tags)))", f" {write}"]


def _item_of(wire: Wire) -> Wire:
    """Return an array's item as a field of its own."""
    if isinstance(wire.item, str):
        return Wire(wire.item)
    return Wire("struct", item=wire.item)
