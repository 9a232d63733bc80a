"""A sample of each request of Kafka's protocol: every list has two items, and no two values of a kind are the same."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from tidegauge.kafka.apis import APIS, message_class
from tidegauge.kafka.fields import WIRE, Wire
from tidegauge_broker.server.wire.kafka.served import SERVED

CHOSEN = {
    "acks": -1,
    "consumer_group_id": "group",
    "key_type": 0,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "protocol_type": "consumer",
    "resource_pattern_type": 3,
    "type": 1,
    "election_type": 0,
    "isolation_level": 1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "operation": 3,
    "permission_type": 3,
    "is_kraft_controller": False,
    "error_code": 0,
    "leader_recovery_state": 0,
    "config_operation": 0,
    "config_source": 1,
    "mechanism": 1,
    "match_type": 0,
    "ops": (),
    "upgrade_type": 1,
    "generation_id": 5,
    "scram_mechanism": 1,
    "security_protocol": 0,
    "replica_state": None,
}
"""Values of fields that Kafka checks while it reads a request; None: the field's default."""


def each_request() -> Iterator[tuple[int, int, str]]:
    """Yield key, version and kind of all served samples: full, and with null in every field that may be null."""
    for api in (one for one in APIS.values() if one.key in SERVED):
        for version in range(api.first, api.last + 1):
            yield api.key, version, "full"
            yield api.key, version, "null"


def sample(key: int, version: int, kind: str) -> Any:
    """Return a sample of a request."""
    return _struct(message_class(key, response=False), version, itertools.count(1), nulls=kind == "null")


def _struct(kind: type, version: int, numbers: Iterator[int], *, nulls: bool) -> Any:
    values = {}
    for field in dataclasses.fields(kind):
        wire: Wire = field.metadata[WIRE]
        if version not in wire.versions:
            continue
        if field.name in CHOSEN and not (wire.kind == "string" and isinstance(CHOSEN[field.name], int)):
            if CHOSEN[field.name] is not None:
                values[field.name] = CHOSEN[field.name]
        elif nulls and version in wire.nullable and wire.kind != "records":
            values[field.name] = None
        else:
            values[field.name] = _value(field.name, wire, version, numbers, nulls=nulls)
    return kind(**values)


def _value(name: str, wire: Wire, version: int, numbers: Iterator[int], *, nulls: bool) -> Any:
    match wire.kind:
        case "struct":
            assert isinstance(wire.item, type)
            return _struct(wire.item, version, numbers, nulls=nulls)
        case "array":
            item = Wire(wire.item) if isinstance(wire.item, str) else Wire("struct", item=wire.item)
            return [_value(name, item, version, numbers, nulls=nulls) for _ in range(2)]
        case "string":
            return f"{name}-{next(numbers)}"
        case "bytes":
            return next(numbers).to_bytes(2, "big")
        case "records":
            return b""
        case "uuid":
            return next(numbers).to_bytes(16, "big")
        case "bool":
            return False
        case "float64":
            return float(next(numbers))
        case _:
            return next(numbers) % 100
