"""The caller of a gRPC call: its peer, its principal, and the broker id that a broker with the lab sends with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import grpc.aio

from tidegauge.channel_options import LAB_AGENT
from tidegauge.host_addresses import host_in, java_host
from tidegauge_broker.server.service.acting import ACTS_FOR
from tidegauge_broker.server.service.caller import Caller

CALLER_KEY = "tidegauge-broker-id"
"""Metadata key of the calling broker's id."""


def caller_of(context: grpc.aio.ServicerContext[Any, Any], listener: str) -> Caller:
    """Return the caller of this call through the listener of this name."""
    broker_id = calling_broker(context.invocation_metadata())
    return Caller(context.peer(), listener, broker_id, principal=ACTS_FOR.get())


def host_of(peer: str) -> str:
    """Return a client's address in Java's form; ``?``: it has none.

    gRPC's form is ``ipv4:127.0.0.1:40312``.
    """
    kind, _, rest = unquote(peer).partition(":")
    return java_host(host_in(rest)) if kind in {"ipv4", "ipv6"} else "?"


def is_of_lab(metadata: Iterable[Any] | None) -> bool:
    """Return whether the lab itself makes a call with this metadata."""
    return any(key == "user-agent" and str(value).startswith(LAB_AGENT) for key, value in metadata or ())


def calling_broker(metadata: Iterable[Any] | None) -> int | None:
    """Return the calling broker by a call's metadata; None: a client."""
    for key, value in metadata or ():
        if key == CALLER_KEY and str(value).isdigit():
            return int(value)
    return None
