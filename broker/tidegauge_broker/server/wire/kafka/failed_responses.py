"""Whether there is an error in a response of Kafka's protocol, at its top or in one of its items. Pure."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tidegauge.kafka.fields import WIRE, Wire
from tidegauge_broker.server.wire.kafka.request import Encoded

_ERRORS = {"error_code", "partition_error_code"}
_NONE = b"\0\0"


@functools.cache
def _fields_of(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a message that are errors, and those that are arrays of messages."""
    wires: list[tuple[str, Wire]] = [(field.name, field.metadata[WIRE]) for field in dataclasses.fields(kind)]
    arrays = tuple(name for name, wire in wires if wire.kind == "array" and isinstance(wire.item, type))
    return tuple(name for name, _ in wires if name in _ERRORS), arrays


def has_error(response: Any) -> bool:
    """Return whether a response has an error in it."""
    if isinstance(response, Encoded):  # of ApiVersions, whose error stands first
        return bytes(response.body[0][:2]) != _NONE
    errors, arrays = _fields_of(response.__class__)
    return any(getattr(response, name) for name in errors) or any(
        has_error(item) for name in arrays for item in getattr(response, name) or ()
    )
