"""gRPC channels to the other brokers, one for each address, made when first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

from tidegauge.v1.admin_service_pb2_grpc import AdminServiceStub
from tidegauge.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidegauge.v1.replication_service_pb2_grpc import ReplicationServiceStub
from tidegauge_controller.broker_channels import OpenChannel, open_channel

if TYPE_CHECKING:  # the asynchronous types exist in the stubs only
    from tidegauge.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tidegauge.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub
    from tidegauge.v1.replication_service_pb2_grpc import ReplicationServiceAsyncStub


class Peers:
    """Stubs by address. The stub classes are one each; the generated types know them under two names."""

    def __init__(self, open_channel: OpenChannel = open_channel) -> None:
        self._open_channel = open_channel
        self._channels: dict[str, grpc.aio.Channel] = {}

    def new_channel(self, address: str) -> grpc.aio.Channel:
        """Return a channel without back-off; the caller owns and closes it."""
        return self._open_channel(address)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._open_channel(address)
        return channel

    def replication(self, address: str) -> ReplicationServiceAsyncStub:
        """Return the stub for requests of followers, and about transactions."""
        return ReplicationServiceStub(self._channel(address))  # type: ignore[return-value]  # see the class

    def controller(self, address: str) -> ControllerServiceAsyncStub:
        """Return the stub for requests of brokers to the controller."""
        return ControllerServiceStub(self._channel(address))  # type: ignore[return-value]  # see the class

    def admin(self, address: str) -> AdminServiceAsyncStub:
        """Return the stub for requests of admins to the controller."""
        return AdminServiceStub(self._channel(address))  # type: ignore[return-value]  # see the class

    async def close(self) -> None:
        """Close all channels."""
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()
