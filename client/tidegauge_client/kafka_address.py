"""A second look at an address that does not speak gRPC: if Kafka clients are served there, find the gRPC listener.

A broker names on each listener only addresses of the same wire protocol, but its settings, which any Kafka client may
read with DescribeConfigs, name all of its listeners. So every verb takes a Kafka address for ``-b``, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import host_in
from tidegauge.kafka.apis import DESCRIBE_CONFIGS, METADATA
from tidegauge.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidegauge.kafka.messages.metadata import MetadataRequest
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.listeners import GRPC, resolve_listeners
from tidegauge.security import Security

PATIENCE_SECONDS = 1.0
"""Timeout of the whole look, as of a metadata request to a single broker."""
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
    "control.plane.listener.name",
)


async def grpc_addresses(address: str, security: Security) -> list[str]:
    """Return the gRPC addresses of a broker by its address for Kafka clients.

    Args:
        address: ``host:port``.
        security: the client's security settings, used for this connection too.
    """
    host = host_in(address)
    channel = KafkaChannel(address, "tidegauge", Dialer(security), security.login)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            settings = await _own_settings(channel)
        return [] if settings is None else named_in(settings, host)
    except (OSError, TimeoutError, TidegaugeError):
        return []
    finally:
        channel.close()


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
        settings.get("control.plane.listener.name"),
    )
    grpc = [listener for listener in found.advertised if found.wires[listener.name] == GRPC]
    return [listener.address for listener in sorted(grpc, key=lambda listener: listener.host != host)]


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",") if entry.strip()]


async def _own_settings(channel: KafkaChannel) -> dict[str, str | None] | None:
    """Return the peer's listener settings; None if it does not describe itself.

    A broker describes its own settings only, so it is asked about every broker that it knows.
    """
    metadata = await channel.request(
        METADATA, MetadataRequest([], False), PATIENCE_SECONDS, at_least=_METADATA_VERSION, at_most=_METADATA_VERSION
    )
    resources = [DescribeConfigsResource(_BROKER, str(one.node_id), _SETTINGS) for one in metadata.brokers]
    configs = await channel.request(
        DESCRIBE_CONFIGS, DescribeConfigsRequest(resources), PATIENCE_SECONDS, at_most=_CONFIGS_VERSION
    )
    for result in configs.results:
        if result.error_code == ErrorCode.NONE:
            settings = {entry.name: entry.value for entry in result.configs}
            return settings if settings.get("listeners") else None
    return None
