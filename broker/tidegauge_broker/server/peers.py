"""gRPC channels to the other brokers, one for each address, made when first needed.

The options matter (ecosystem 4): by default gRPC retries a dead peer only after up to two minutes, takes at most
4 MiB, and shares one connection among all channels to an address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc.aio

from tidegauge.v1.admin_service_pb2_grpc import AdminServiceStub
from tidegauge.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidegauge.v1.replication_service_pb2_grpc import ReplicationServiceStub

if TYPE_CHECKING:  # the asynchronous types exist in the stubs only
    from tidegauge.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tidegauge.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub
    from tidegauge.v1.replication_service_pb2_grpc import ReplicationServiceAsyncStub

CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)


OpenChannel = Callable[[str], grpc.aio.Channel]
"""How an address is reached; the lab puts another in its place."""


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel with these options."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


class Peers:
    """Stubs by address. The stub classes are one each; the generated types know them under two names."""

    def __init__(self, open_channel: OpenChannel = open_channel) -> None:
        self._open_channel = open_channel
        self._channels: dict[str, grpc.aio.Channel] = {}

    def new_channel(self, address: str) -> grpc.aio.Channel:
        """A channel of the caller's own, to be closed by it; it knows of no earlier failure."""
        return self._open_channel(address)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._open_channel(address)
        return channel

    def replication(self, address: str) -> ReplicationServiceAsyncStub:
        """What followers ask of leaders."""
        return ReplicationServiceStub(self._channel(address))  # type: ignore[return-value]  # see the class

    def controller(self, address: str) -> ControllerServiceAsyncStub:
        """What brokers ask of the controller."""
        return ControllerServiceStub(self._channel(address))  # type: ignore[return-value]  # see the class

    def admin(self, address: str) -> AdminServiceAsyncStub:
        """What administrators ask of the controller."""
        return AdminServiceStub(self._channel(address))  # type: ignore[return-value]  # see the class

    async def close(self) -> None:
        """Close all channels."""
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()
