"""Messages that no client should send: odd values of the right types, and bytes that are no message at all."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

INTS = (0, 1, -1, 2, 3, 7, 50, 2**31 - 1, -(2**31))
LONGS = (*INTS, 2**63 - 1, -(2**63), 2**40)
DOUBLES = (0.0, -1.0, 1e308, float("nan"), float("inf"))
TEXTS = ("", "..", "../x", "a" * 300, "a/b", "t\n", "é", "<default>", "-1", "9" * 400, "retention.ms", "some", "other")
_NUMBERS: Mapping[int, Sequence[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: INTS,
    FieldDescriptor.CPPTYPE_INT64: LONGS,
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: DOUBLES,
    FieldDescriptor.CPPTYPE_FLOAT: DOUBLES,
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 99, -1),
}


class Maker:
    """Makes them from a seed.

    Args:
        seed: the same gives the same messages.
        fixed: values for fields of these names, in place of any value of their type.
        texts: more of them.
    """

    def __init__(self, seed: int, fixed: Mapping[str, Sequence[Any]], texts: Collection[str] = ()) -> None:
        self._random = random.Random(seed)
        self._fixed = fixed
        self._texts = (*TEXTS, *texts)

    def message(self, descriptor: Descriptor) -> Message:
        """Each field absent, or with an odd value of its type; one that is fixed is never absent."""
        message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if field.name in self._fixed or self._random.random() < 0.8:
                self._fill(message, field)
        return message

    def _fill(self, message: Message, field: FieldDescriptor) -> None:
        count = self._random.randint(1, 3)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(count):
                getattr(message, field.name)[self._random.choice(self._texts)] = self._random.choice(self._texts)
        elif field.message_type is not None:
            parts = [self.message(field.message_type) for _ in range(count if field.is_repeated else 1)]
            getattr(message, field.name).MergeFrom(parts if field.is_repeated else parts[0])
        elif field.is_repeated:
            getattr(message, field.name).extend(self._value(field) for _ in range(count))
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: FieldDescriptor) -> Any:
        if field.name in self._fixed:
            return self._random.choice(self._fixed[field.name])
        if field.cpp_type in _NUMBERS:
            return self._random.choice(_NUMBERS[field.cpp_type])
        if field.type == FieldDescriptor.TYPE_STRING:
            return self._random.choice(self._texts)
        return self._random.randbytes(self._random.choice((0, 1, 61, 200)))

    def rubbish(self, descriptor: Descriptor) -> Iterator[bytes]:
        """Bytes that are truncated, changed, endless, deep, or many."""
        sound = self.message(descriptor).SerializeToString()
        yield sound[: len(sound) // 2]
        yield self._random.randbytes(300)
        yield b"\xff" * 50
        yield b"\x0b" * 20_000  # groups in groups
        yield b"\x9a\x7d\x02ab" * 2_000  # an unknown field, over and over
        nested = b""
        for _ in range(400):
            nested = b"\x0a" + _varint(len(nested)) + nested
        yield nested
        for field in descriptor.fields:
            if field.message_type is not None and field.is_repeated:
                yield (_varint(field.number << 3 | 2) + b"\0") * 1_000_000
                break


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
