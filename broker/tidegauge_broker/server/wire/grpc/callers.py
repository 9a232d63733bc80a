"""The caller of a gRPC call: its peer, and the broker id that brokers with the lab send in the call's metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc.aio

from tidegauge_broker.server.service.caller import Caller

CALLER_KEY = "tidegauge-broker-id"
"""Metadata key of the calling broker's id."""


def caller_of(context: grpc.aio.ServicerContext[Any, Any], listener: str) -> Caller:
    """Return the caller of this call through the listener of this name."""
    return Caller(context.peer(), listener, calling_broker(context.invocation_metadata()))


def calling_broker(metadata: Iterable[Any] | None) -> int | None:
    """Return the broker that made a call with this metadata; None for a client."""
    for key, value in metadata or ():
        if key == CALLER_KEY and str(value).isdigit():
            return int(value)
    return None
