"""Codecs that stop between the items of an array: what reads or writes a large message can let others work meanwhile.

They are compiled from ``compiler``'s tables, and read and write the same bytes. Functions of a
struct with arrays are generators that yield after each item; a struct without any keeps its plain functions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tidegauge.kafka.compiler import Append, Codec, Compiler
from tidegauge.kafka.fields import Wire


class StepwiseCodec(NamedTuple):
    """The functions for one message in one version; see ``Codec``.

    Attributes:
        decode: of a buffer and an offset; its generator returns the value and the offset behind it.
        encode: of a value and a function that takes the next buffer.
    """

    decode: Callable[[memoryview, int], Generator[None, None, tuple[Any, int]]]
    encode: Callable[[Any, Append], Generator[None, None, None]]


@functools.cache
def stepwise_codec(struct_class: type, version: int, flexible: bool) -> StepwiseCodec:
    """Return a message's stepwise codec; a message without arrays takes one step."""
    functions = _functions(struct_class, version, flexible)

    def decode(buffer: memoryview, offset: int) -> Generator[None, None, tuple[Any, int]]:
        if not inspect.isgeneratorfunction(functions.decode):
            return functions.decode(buffer, offset)
        found: tuple[Any, int] = yield from functions.decode(buffer, offset)
        return found

    def encode(value: Any, append: Append) -> Generator[None, None, None]:
        if functions.encode is not None:
            append(functions.encode(value))
        elif inspect.isgeneratorfunction(functions.encode_parts):
            yield from functions.encode_parts(value, append)
        elif functions.encode_parts is not None:
            functions.encode_parts(value, append)

    return StepwiseCodec(decode, encode)


@functools.cache
def _functions(struct_class: type, version: int, flexible: bool) -> Codec:
    return _StepwiseCompiler(struct_class, version, flexible).compile()


class _StepwiseCompiler(Compiler):
    """A compiler whose functions yield after each item of an array. Tagged fields are written in one step."""

    def _read_nested(self, wire: Wire) -> str:
        assert isinstance(wire.item, type)
        nested = _functions(wire.item, self._version, self._flexible).decode
        if not inspect.isgeneratorfunction(nested):
            return super()._read_nested(wire)
        name = f"steps_of_{wire.item.__name__}"
        self._names[name] = nested
        return f"yield from {name}(b,o)"

    def _read_items(self, wire: Wire, target: str, indent: str) -> list[str]:
        lines = super()._read_items(wire, target, indent)
        has_loop = lines[-1].endswith(".append(z_)")
        return [*lines, f"{indent} yield"] if has_loop else lines

    def _holds(self, wire: Wire) -> bool:
        is_walked = wire.kind == "array" and isinstance(wire.item, type)
        return is_walked or super()._holds(wire)

    def _write_item(self, wire: Wire) -> str:
        assert isinstance(wire.item, type)
        nested = _functions(wire.item, self._version, self._flexible)
        name = f"parts_of_{wire.item.__name__}"
        self._names[name] = nested.encode or nested.encode_parts
        if nested.encode is not None:
            return f"w({name}(z));yield"
        if inspect.isgeneratorfunction(nested.encode_parts):
            return f"yield from {name}(z,w);yield"
        return f"{name}(z,w);yield"
