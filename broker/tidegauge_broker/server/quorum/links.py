"""Sends the requests of a quorum's node to other nodes, over Kafka's protocol: one connection for each address.

The node has at most one request in flight to each destination, and gives it up by itself after the request timeout;
a connection whose response did not come in time is closed.
Source: ``KafkaNetworkChannel``, ``RequestManager``.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_broker.server.quorum.requests_out import read_response, unsupported, write_request
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.messages import Response

MOST_CHANNELS = 64
"""Addresses come from other nodes' messages, so there must be a limit."""

OpenChannel = Callable[[str], KafkaChannel]


class QuorumLinks:
    """See the module.

    Args:
        node_id: this node's id.
        listener: the name of the controllers' listener.
        timeout_seconds: of a request, a connection that must be made included.
        open_channel: makes the channel to an address; the lab puts its own there.
    """

    def __init__(
        self, node_id: int, listener: str, timeout_seconds: float, open_channel: OpenChannel | None = None
    ) -> None:
        self._listener = listener
        self._timeout_seconds = timeout_seconds
        self._open = open_channel or (
            lambda address: KafkaChannel(address, f"raft-client-{node_id}", protocol=KRAFT_PROTOCOL)
        )
        self._channels: dict[str, KafkaChannel] = {}

    async def send(self, effect: effects.Send) -> Response:
        """Send a request and return its response.

        Raises:
            TidegaugeError: there is none.
        """
        channel = self._channel(address_of(effect.endpoint.host, effect.endpoint.port))
        request = write_request(effect.request)
        try:
            message = await channel.request(
                request.key, request.message, self._timeout_seconds, at_least=request.at_least
            )
        except TidegaugeError as problem:
            known = unsupported(effect.request) if problem.code is ErrorCode.UNSUPPORTED_VERSION else None
            if known is None:
                raise
            return known
        return read_response(effect.request, message, self._listener)

    def open_other(self, address: str) -> KafkaChannel:
        """Return a new channel for requests that are not of the quorum; the caller closes it."""
        return self._open(address)

    def _channel(self, address: str) -> KafkaChannel:
        """Return the channel to an address; the one used longest ago is closed if there are too many."""
        channel = self._channels.pop(address, None) or self._open(address)
        self._channels[address] = channel
        if len(self._channels) > MOST_CHANNELS:
            oldest = next(iter(self._channels))
            self._channels.pop(oldest).close()
        return channel

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
