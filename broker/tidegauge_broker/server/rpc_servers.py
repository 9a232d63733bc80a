"""The gRPC servers of a broker: one for each listener, so that an answer can name the addresses of its listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc
import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import Listener

STOP_GRACE_SECONDS = 0.2


class RpcServers:
    """Servers that offer the same services on several addresses.

    Args:
        listeners: what to bind.
        max_request_bytes: larger requests are refused.
        add_services: adds the services to the server of a listener, by the listener's name.
        interceptors: what stands before the services.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        max_request_bytes: int,
        add_services: Callable[[grpc.aio.Server, str], None],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self._servers: list[grpc.aio.Server] = []
        for listener in listeners:
            server = grpc.aio.server(
                interceptors=interceptors,
                options=(
                    ("grpc.so_reuseport", 0),
                    ("grpc.max_receive_message_length", max_request_bytes),
                    ("grpc.max_send_message_length", -1),
                ),
            )
            add_services(server, listener.name)
            _bind(server, listener)
            self._servers.append(server)

    async def start(self) -> None:
        """Serve."""
        for server in self._servers:
            await server.start()

    async def stop(self, grace_seconds: float | None = STOP_GRACE_SECONDS) -> None:
        """Serve no more; calls under way have this long to end."""
        for server in self._servers:
            await server.stop(grace=grace_seconds)


def _bind(server: grpc.aio.Server, listener: Listener) -> None:
    try:
        server.add_insecure_port(listener.address)
    except RuntimeError:
        raise TidegaugeError(
            ErrorCode.NETWORK_EXCEPTION,
            f"{listener.address} can't be bound: another process listens there, or the address is not this "
            f"machine's; free the port or give another with listeners={listener.name}://HOST:PORT",
        ) from None
