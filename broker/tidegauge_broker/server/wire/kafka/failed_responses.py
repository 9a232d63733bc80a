"""The errors in a response of Kafka's protocol, at its top and in its items. Pure."""

from __future__ import annotations

import functools
from typing import Any

from tidegauge.kafka.fields import wires_of
from tidegauge_broker.server.wire.kafka.error_forms import ERROR_FIELDS
from tidegauge_broker.server.wire.kafka.responses import Encoded


@functools.cache
def _fields_of(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a message's error fields, and its arrays of messages with any."""
    wires = wires_of(kind)
    arrays = tuple(
        name
        for name, wire in wires.items()
        if wire.kind == "array" and isinstance(wire.item, type) and any(_fields_of(wire.item))
    )
    return tuple(name for name in wires if name in ERROR_FIELDS), arrays


def errors_in(response: Any) -> set[int]:
    """Return the numbers of the errors in a response."""
    if isinstance(response, Encoded):  # of ApiVersions, whose error is first
        return _without_none({int.from_bytes(response.body[0][:2], "big")})
    found: set[int] = set()
    _collect(response, found)
    return _without_none(found)


def _collect(response: Any, found: set[int]) -> None:
    errors, arrays = _fields_of(response.__class__)
    found.update(int(getattr(response, name)) for name in errors)
    for name in arrays:
        for item in getattr(response, name) or ():
            _collect(item, found)


def _without_none(errors: set[int]) -> set[int]:
    return errors - {0}
