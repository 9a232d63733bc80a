"""The gRPC servers of a broker: one for each listener, so that a response can name the addresses of its listener.

The rules are ``wire.limits``'; gRPC holds them in its own way:
    1. ``max.connections.per.ip``: see ``connections``.
    2. ``connections.max.idle.ms``: a connection without calls is closed after that time. A peer that vanished while a
       call was in progress is pinged after the same time, and its connection closed when it does not respond.
    3. ``queued.max.requests``: maximum number of concurrent streams; the client keeps the next calls.
    4. A connection that sends no handshake within ``HANDSHAKE_MS`` is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import GRPC, WITH_TLS, Listener, Listeners
from tidegauge.logical_clock import LogicalClock
from tidegauge.settings import INT_MAX
from tidegauge_broker.server.service.gate import Gate
from tidegauge_broker.server.service.middleware import Responded
from tidegauge_broker.server.service.pending_responses import PendingResponses
from tidegauge_broker.server.wire.grpc import records_response
from tidegauge_broker.server.wire.grpc.authentication import Around
from tidegauge_broker.server.wire.grpc.connections import Connections
from tidegauge_broker.server.wire.grpc.counted_responses import CountedResponses
from tidegauge_broker.server.wire.grpc.gated_calls import GatedCalls
from tidegauge_broker.server.wire.grpc.logical_time import LogicalTime
from tidegauge_broker.server.wire.grpc.measured_calls import MeasuredCalls
from tidegauge_broker.server.wire.grpc.request_guard import GuardedServer
from tidegauge_broker.server.wire.limits import Limits

STOP_GRACE_SECONDS = 0.2
HANDSHAKE_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 20_000
"""Keepalive timeout: how long a peer has to respond to a ping."""


def grpc_options(limits: Limits) -> tuple[tuple[str, int], ...]:
    """Return the options of a gRPC server that hold these limits."""
    # The library rejects a limit that is none.
    limit = (("grpc.max_allowed_incoming_connections", limits.connections),) if limits.connections < INT_MAX else ()
    return (
        *limit,
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_connection_idle_ms", limits.idle_ms),
        ("grpc.keepalive_time_ms", limits.idle_ms),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_concurrent_streams", limits.calls_per_connection),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    )


class RpcServers:
    """Servers that offer the same services on several addresses.

    Args:
        listeners: those that speak gRPC are bound.
        limits: on connections and requests.
        tls: returns the credentials of a listener with TLS, by its name; None: there is none.
        add_services: adds the services to the server of a listener, by the listener's name.
        clock: the logical clock that goes with the calls between brokers.
        responses: counts those that wait to be written; it can close connections of these servers.
        gate: before the services; None: there is none.
        responded: takes the responses, for metrics and request log; None: there are neither.
        connections_of: ``max.connections`` of a listener, by its name; None: the limits' value.
        authenticated: returns what authenticates the callers of a listener, by its name; None: none of any listener.
        authorized: returns what judges the calls of a listener, by its name; None: all calls of all are allowed.
    """

    def __init__(
        self,
        listeners: Listeners,
        limits: Limits,
        tls: Callable[[str], grpc.ServerCredentials] | None,
        add_services: Callable[[grpc.aio.Server, str], None],
        clock: LogicalClock,
        responses: PendingResponses,
        gate: Gate | None = None,
        responded: Responded | None = None,
        connections_of: Callable[[str], int] | None = None,
        authenticated: Callable[[str], Around | None] | None = None,
        authorized: Callable[[str], Around | None] | None = None,
    ) -> None:
        self._servers: list[grpc.aio.Server] = []
        counted, timed = CountedResponses(responses), LogicalTime(clock)

        def around(
            measured: MeasuredCalls,
            authenticate: Around | None,
            judge: Around | None,
            service: str,
            method: str,
            handler: Any,
        ) -> Any:
            inner = timed.around(handler)
            inner = measured.around(method, inner if judge is None else judge(service, method, inner))
            whole = records_response.around(method, counted.around(service, method, inner))
            return whole if authenticate is None else authenticate(service, method, whole)

        bound = listeners.bound_by(GRPC)
        ports = {listener.port: listener.name for listener in bound}
        self.connections = Connections(ports, limits.connections_per_ip)
        for listener in bound:
            interceptors = () if gate is None else (GatedCalls(gate, listener.name),)
            most = limits.connections if connections_of is None else connections_of(listener.name)
            options = grpc_options(limits._replace(connections=most))
            server = grpc.aio.server(interceptors=interceptors, options=options)
            authenticate = None if authenticated is None else authenticated(listener.name)
            judge = None if authorized is None else authorized(listener.name)
            measured = MeasuredCalls(responded, listener.name)
            guarded = GuardedServer(server, partial(around, measured, authenticate, judge))
            # It has what the generated code uses of a server.
            add_services(cast("grpc.aio.Server", guarded), listener.name)
            has_tls = tls is not None and listeners.protocols[listener.name] in WITH_TLS
            _bind(server, listener, tls(listener.name) if tls is not None and has_tls else None)
            self._servers.append(server)

    async def start(self) -> None:
        """Serve."""
        for server in self._servers:
            await server.start()
        self.connections.watch()

    async def stop(self, grace_seconds: float | None = STOP_GRACE_SECONDS) -> None:
        """Stop serving; ``grace_seconds`` is the timeout of calls in flight."""
        await self.connections.close()
        for server in self._servers:
            await server.stop(grace=grace_seconds)


def _bind(server: grpc.aio.Server, listener: Listener, tls: grpc.ServerCredentials | None) -> None:
    try:
        if tls is None:
            server.add_insecure_port(listener.address)
        else:
            server.add_secure_port(listener.address, tls)
    except RuntimeError:
        raise TidegaugeError(
            ErrorCode.NETWORK_EXCEPTION,
            f"{listener.address} can't be bound: another process listens there, or the address is not this "
            f"machine's; free the port or give another with listeners={listener.name}://HOST:PORT",
        ) from None
