"""Sends the requests of a quorum's node to other nodes, over Kafka's protocol: one connection for each destination.

A destination is a node's id with its address. A bootstrap server, whose id is not known, has a connection of its own,
as in Kafka (``NetworkClient`` keeps connections by node id): a fetch that waits at a bootstrap server holds no vote up.

The node has at most one request in flight to each destination, and gives it up by itself after the request timeout;
a connection whose response did not come in time is closed. Why an address can't be used is a line of the log, once
until that changes: a node whose quorum can't be reached tries forever, as Kafka's do.
Source: ``KafkaNetworkChannel``, ``RequestManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_broker.server.quorum.requests_out import read_response, unsupported, write_request
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.messages import Response

LOG = logging.getLogger("tidegauge.quorum")
_MEANINGS: Mapping[ErrorCode, str] = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it is of another cluster than this node's directories "
    "(INCONSISTENT_CLUSTER_ID); name the controllers of this cluster in controller.quorum.bootstrap.servers, or give "
    "the node a directory that was formatted with that cluster's id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "it does not let this node take part (CLUSTER_AUTHORIZATION_FAILED); add "
    "the node's principal to super.users of the controllers",
}
"""Meanings of top-level errors of a response: the node itself only tries again."""
MOST_CHANNELS = 64
"""Maximum number of connections. Addresses come from other nodes' messages, so there must be a limit."""

OpenChannel = Callable[[str], KafkaChannel]


class QuorumLinks:
    """The connections of a quorum's node to other nodes.

    Args:
        listener: the name of the controllers' listener.
        timeout_seconds: of a request, a connection that must be made included.
        open_channel: makes the channel to an address; the lab puts its own there.
    """

    def __init__(self, listener: str, timeout_seconds: float, open_channel: OpenChannel) -> None:
        self._listener = listener
        self._timeout_seconds = timeout_seconds
        self._open = open_channel
        self._channels: dict[tuple[int, str], KafkaChannel] = {}
        self._said: dict[str, str] = {}

    async def send(self, effect: effects.Send) -> Response:
        """Send a request and return its response.

        Raises:
            TidegaugeError: there is none.
        """
        address = address_of(effect.endpoint.host, effect.endpoint.port)
        channel = self._channel(effect.node_id, address)
        request = write_request(effect.request)
        try:
            message = await channel.request(
                request.key, request.message, self._timeout_seconds, at_least=request.at_least
            )
        except TidegaugeError as problem:
            known = unsupported(effect.request) if problem.code is ErrorCode.UNSUPPORTED_VERSION else None
            if known is None:
                self._say(address, problem.message)
                raise
            return known
        try:
            response = read_response(effect.request, message, self._listener)
        except TidegaugeError as problem:  # such as records that the disk of the leader has damaged (KAFKA-18723)
            self._say(address, f"its response to {type(effect.request).__name__} can't be read: {problem.message}")
            raise
        self._say(address, _MEANINGS.get(response.top_level_error, ""))
        return response

    def _say(self, address: str, why: str) -> None:
        """Say why an address can't be used, unless that is said already; empty: it can."""
        if why and self._said.get(address) != why:
            LOG.info("The controller at %s can't be used, and is tried again: %s", address, why)
        if why:
            self._said[address] = why
            while len(self._said) > MOST_CHANNELS:
                del self._said[next(iter(self._said))]
        elif self._said.pop(address, None) is not None:
            LOG.info("The controller at %s can be used again", address)

    def open_other(self, address: str) -> KafkaChannel:
        """Return a new channel for requests outside the quorum; the caller closes it."""
        return self._open(address)

    def _channel(self, node_id: int, address: str) -> KafkaChannel:
        """Return the channel to a node; too many close the oldest."""
        channel = self._channels.pop((node_id, address), None) or self._open(address)
        self._channels[node_id, address] = channel
        if len(self._channels) > MOST_CHANNELS:
            oldest = next(iter(self._channels))
            self._channels.pop(oldest).close()
        return channel

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
