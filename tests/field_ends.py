"""Every number of every request of Kafka's protocol at the ends of its type, derived from the message schemas.

A new API, or a new field of one, is covered without being listed here.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.odd_requests import OddRequests

from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge.kafka.fields import WIRE, Wire

ENDS: Mapping[str, tuple[int, ...]] = {
    "int8": (0, -1, 2**7 - 1, -(2**7)),
    "int16": (0, -1, 2**15 - 1, -(2**15)),
    "uint16": (0, 2**16 - 1),
    "int32": (0, -1, 2**31 - 1, -(2**31)),
    "int64": (0, -1, 2**63 - 1, -(2**63)),
}
"""Zero, a negative number, the largest and the smallest."""


class Number(NamedTuple):
    """A field of a request, or the items of an array of numbers, that holds an integer.

    Attributes:
        path: the names of the structs' fields that lead to it, its own last.
        kind: of ``ENDS``.
        version: the highest version of its API that has it.
    """

    path: tuple[str, ...]
    kind: str
    version: int


class EndRequests(OddRequests):
    """Makes requests whose fields all have the likeliest value, but for one number."""

    def __init__(self, topics: Mapping[str, bytes], protocol: Protocol = BROKER_PROTOCOL) -> None:
        super().__init__(random.Random(0), topics, protocol=protocol)
        self.learned = {"member_id": [""], "producer_id": [7]}

    def at(self, key: int, number: Number, value: int) -> Any:
        """Return a request of an API in which one number has this value."""
        made = self.message(key, number.version)
        holder = made
        for name in number.path[:-1]:
            part = getattr(holder, name)
            holder = part[0] if isinstance(part, list | tuple) else part
        former = getattr(holder, number.path[-1])
        object.__setattr__(holder, number.path[-1], [value] if isinstance(former, list | tuple) else value)
        return made

    def _struct(self, api: str, kind: type, version: int) -> Any:
        wires = {field.name: field.metadata[WIRE] for field in dataclasses.fields(kind)}
        values = {n: self._value(api, n, wire, version) for n, wire in wires.items() if version in wire.versions}
        return kind(**values)

    def _value(self, api: str, name: str, wire: Wire, version: int) -> Any:
        if wire.kind == "struct":
            assert isinstance(wire.item, type)
            return self._struct(api, wire.item, version)
        if wire.kind == "array":
            item = Wire(wire.item) if isinstance(wire.item, str) else Wire("struct", item=wire.item)
            return [self._value(api, name, item, version)]
        return self._pool(api, name, wire.kind)[0]


def numbers(key: int, protocol: Protocol = BROKER_PROTOCOL) -> Iterator[Number]:
    """Yield every number of an API's requests, each in the highest version that has it."""
    api = protocol.apis[key]
    yield from _numbers(protocol.message_class(key, response=False), (), api.first, api.last)


def _numbers(kind: type, path: tuple[str, ...], first: int, last: int) -> Iterator[Number]:
    for field in dataclasses.fields(kind):
        wire: Wire = field.metadata[WIRE]
        lowest, highest = max(first, wire.versions.first), min(last, wire.versions.last)
        if lowest > highest:
            continue
        here, item = (*path, field.name), wire.item if wire.kind == "array" else wire.kind
        if isinstance(wire.item, type):
            yield from _numbers(wire.item, here, lowest, highest)
        elif isinstance(item, str) and item in ENDS:
            yield Number(here, item, highest)
