"""Channels to the other brokers over Kafka's protocol: one for each address and purpose, made when first needed."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.kafka_channel import KafkaChannel


class KafkaPeers:
    """The channels to the other brokers over Kafka's protocol.

    Args:
        broker_id: this broker; its requests have the client id ``broker-ID-PURPOSE``, as Kafka's brokers do.
        open_channel: opens a channel to an address, for a client id.
    """

    def __init__(self, broker_id: int, open_channel: Callable[[str, str], KafkaChannel]) -> None:
        self._broker_id = broker_id
        self._open_channel = open_channel
        self._channels: dict[tuple[str, str], KafkaChannel] = {}

    def channel(self, address: str, purpose: str) -> KafkaChannel:
        """Return an address's channel; requests of one purpose wait for one another."""
        channel = self._channels.get((address, purpose))
        if channel is None:
            channel = self._open_channel(address, f"broker-{self._broker_id}-{purpose}")
            self._channels[address, purpose] = channel
        return channel

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
