"""A second look at an address that does not speak gRPC: if Kafka clients are served there, find the gRPC listener.

A broker names on each listener only addresses of the same wire protocol, but its settings, which any Kafka client may
read with DescribeConfigs, name all of its listeners. So every verb takes a Kafka address for ``-b``, too.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import DESCRIBE_CONFIGS, METADATA
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidegauge.kafka.messages.metadata import MetadataRequest
from tidegauge.listeners import GRPC, resolve_listeners
from tidegauge.security import Security, verifying_context

PATIENCE_SECONDS = 1.0
"""Timeout of the whole look: that of a metadata request to a single broker."""
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_BROKER = 4
"""Number of a broker's configuration resource (``ConfigResource.Type``)."""
_METADATA_VERSION = 4
_CONFIGS_VERSION = 1
_SETTINGS = (
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
    "listener.wire.protocol.map",
)


async def grpc_addresses(address: str, security: Security) -> list[str]:
    """Return the gRPC addresses of a broker that serves Kafka clients at an address; empty if it serves none there.

    Args:
        address: ``host:port``.
        security: the client's security settings, used for this connection too.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context: ssl.SSLContext | None = None
    if security.is_tls:
        context = verifying_context(security)
        context.set_alpn_protocols([])
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            try:
                settings = await _own_settings(reader, writer)
            finally:
                writer.transport.abort()
        return [] if settings is None else named_in(settings, host)
    except (OSError, EOFError, TimeoutError, MalformedMessage, TidegaugeError):
        return []


def named_in(settings: Mapping[str, str | None], host: str) -> list[str]:
    """Return the advertised gRPC addresses that a broker's settings name.

    Those on the host that the client has reached come first: a cluster in containers has listeners for both networks.

    Raises:
        TidegaugeError: INVALID_CONFIG, the settings contradict each other.
    """
    found = resolve_listeners(
        settings["listeners"] or "",
        settings.get("advertised.listeners"),
        settings.get("inter.broker.listener.name"),
        _entries(settings.get("listener.security.protocol.map")),
        settings.get("security.inter.broker.protocol"),
        _entries(settings.get("listener.wire.protocol.map")),
    )
    grpc = [listener for listener in found.advertised if found.wires[listener.name] == GRPC]
    return [listener.address for listener in sorted(grpc, key=lambda listener: listener.host != host)]


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",") if entry.strip()]


async def _own_settings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, str | None] | None:
    """Return the listener settings of the broker at the other end; None if it does not describe itself.

    A broker describes its own settings only, so it is asked for those of every broker that it knows.
    """
    metadata = await _ask(reader, writer, METADATA, _METADATA_VERSION, MetadataRequest([], False))
    resources = [DescribeConfigsResource(_BROKER, str(one.node_id), _SETTINGS) for one in metadata.brokers]
    configs = await _ask(reader, writer, DESCRIBE_CONFIGS, _CONFIGS_VERSION, DescribeConfigsRequest(resources))
    for result in configs.results:
        if result.error_code == ErrorCode.NONE:
            settings = {entry.name: entry.value for entry in result.configs}
            return settings if settings.get("listeners") else None
    return None


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int, version: int, body: Any) -> Any:
    writer.write(joined(request_frame(key, version, 0, "tidegauge", body)))
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not 0 <= size <= _MAX_RESPONSE_BYTES:
        raise MalformedMessage(f"a response of {size} bytes")
    frame = memoryview(await reader.readexactly(size))
    _, begins_at = read_response_header(key, version, frame)
    return decode(key, version, frame, begins_at, response=True)[0]
