"""The CONTROLLER listener: Kafka's protocol, with the APIs that the nodes of a quorum and its tools call.

Rules (Kafka's SocketServer and ControllerApis):
    1. A frame of a wrong size, an unknown API or version, and a body that can't be read close the connection, with one
       line in the log. ApiVersions of an unknown version is responded to, in version 0 (KIP-511).
    2. A connection's requests are handled one at a time; nothing more is read while one waits for its response, or
       while the client does not take the responses that it has.
    3. A connection that is idle for ``connections.max.idle.ms`` is closed; there are at most ``MOST_CONNECTIONS``.
    4. A client is who its certificate says on an SSL listener, and User:ANONYMOUS on one without SASL else; those of
       listeners with SASL authenticate themselves first (``sasl_connection``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import peer_host
from tidegauge.kafka.apis import API_VERSIONS
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import RequestHeader, UnsupportedRequest, codec_of, read_request_header
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.api_versions import ApiVersionsResponse
from tidegauge.listeners import Listener
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.listener_security import OPEN, ListenerSecurity
from tidegauge_broker.server.wire.connection_rates import ConnectionRates
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots
from tidegauge_broker.server.wire.kafka.acceptor import Acceptor
from tidegauge_broker.server.wire.kafka.frame_reader import FrameReader

LOG = logging.getLogger("tidegauge.quorum")
MOST_CONNECTIONS = 1000


class Owner(Protocol):
    """What a connection needs of its listener."""

    handlers: Mapping[int, Served]
    max_request_bytes: int

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client with this certificate, in DER; None closes its connection."""
        ...

    def opened(self, connection: QuorumConnection) -> bool:
        """Count a connection; return whether there is room for it."""
        ...

    def closed(self, connection: QuorumConnection) -> None:
        """Forget a connection."""


class QuorumConnection(asyncio.BufferedProtocol):
    """One connection; see the module."""

    def __init__(self, owner: Owner, seconds: Callable[[], float]) -> None:
        self._owner = owner
        self._seconds = seconds
        self._reader = FrameReader(owner.max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._waits = False
        self._is_writable = True
        self._is_busy = False
        self._is_reading = True
        self.peer_host = "?"
        self.principal: Principal = ANONYMOUS
        self.used_seconds = seconds()

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its response."""
        return not self._waits

    # The transport's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless the listener has no room."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer_host = peer_host(transport.get_extra_info("peername"))
        tls = transport.get_extra_info("ssl_object")
        principal = self._owner.principal_of(None if tls is None else tls.getpeercert(binary_form=True))
        self.principal = principal or ANONYMOUS
        if not self._owner.opened(self) or principal is None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what is in flight."""
        del exc
        self._transport = None
        self._owner.closed(self)

    def pause_writing(self) -> None:
        """Begin no further request before the client has read its responses."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._is_writable = True
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are read to."""
        del sizehint
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take in what was read."""
        self.used_seconds = self._seconds()
        self._reader.take(nbytes)
        self._go_on()

    # Requests

    def _go_on(self) -> None:
        """Begin the next request if none waits, and read on if there is none."""
        if self._is_busy:
            return  # a handler responds at once; the loop below goes on
        self._is_busy = True
        try:
            while self._reader.frames and not self._waits and self._is_writable and self._transport is not None:
                self._begin(self._reader.frames.popleft())
        finally:
            self._is_busy = False
        transport, problem = self._transport, self._reader.problem
        if transport is None:
            return
        if problem is not None and not self._reader.frames and not self._waits:
            self._refuse(problem)
            return
        wants = not self._reader.frames and problem is None and not self._waits and self._is_writable
        if wants != self._is_reading:
            self._is_reading = wants
            (transport.resume_reading if wants else transport.pause_reading)()

    def _begin(self, frame: memoryview) -> None:
        try:
            header = read_request_header(frame, KRAFT_PROTOCOL)
            served = self._owner.handlers.get(header.key)
            if served is None:
                raise UnsupportedRequest(f"API key {header.key} is not served by controllers")
            version, message = header.version, None
            if header.key == API_VERSIONS and not KRAFT_PROTOCOL.apis[API_VERSIONS].has(header.version):
                version = -1  # the body of an unknown version is not read
            else:
                message, _ = codec_of(header.key, header.version, KRAFT_PROTOCOL).decode_request(frame, header.body_at)
            self._waits = True
            served.handle(self._call(served, header, version, message))
        except (MalformedMessage, UnsupportedRequest) as problem:
            self._refuse(str(problem))
        except Exception:
            LOG.exception("A request of /%s fails here; its connection is closed", self.peer_host)
            self.close()

    def _call(self, served: Served, header: RequestHeader, version: int, message: Any) -> Call:
        def respond(response: Any) -> None:
            self._respond(header, response)

        def refuse(error: ErrorCode, text: str) -> None:
            respond(served.refusal(version, message, error, text))

        client_id = header.client_id or ""
        return Call(header.key, version, message, respond, refuse, self.principal, self.peer_host, client_id)

    def _respond(self, header: RequestHeader, response: Any) -> None:
        if self._transport is None:
            return
        self._waits = False
        self.used_seconds = self._seconds()
        version = header.version
        if isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        codec = codec_of(header.key, version, KRAFT_PROTOCOL)
        self._transport.writelines(codec.response_frame(header.correlation_id, codec.encode(response)))
        self._go_on()

    def _refuse(self, why: str) -> None:
        LOG.info("Closing the connection of /%s: %s", self.peer_host, why)
        self.close()

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()


class QuorumListener:
    """One address and its connections.

    Args:
        at: the address to bind.
        handlers: the APIs that are served, by key.
        max_request_bytes: the largest frame.
        idle_seconds: how long a connection may be idle.
        clock: the process's.
        security: what it asks of clients.
    """

    def __init__(
        self,
        at: Listener,
        handlers: Mapping[int, Served],
        max_request_bytes: int,
        idle_seconds: float,
        clock: Callable[[], int],
        security: ListenerSecurity = OPEN,
    ) -> None:
        self.handlers = handlers
        self.max_request_bytes = max_request_bytes
        self._at = at
        self._idle_seconds = idle_seconds
        self._connections: set[QuorumConnection] = set()
        self._clock = clock
        self._security = security
        self._slots = ConnectionSlots()
        self._acceptor = Acceptor(at, security.tls, ConnectionRates(), self._slots, clock, self._connection)
        self._idle_timer: asyncio.TimerHandle | None = None

    def _connection(self) -> QuorumConnection:
        seconds = asyncio.get_running_loop().time
        if self._security.sasl is None:
            return QuorumConnection(self, seconds)
        from tidegauge_broker.server.quorum.sasl_connection import QuorumSaslConnection  # noqa: PLC0415 - few have SASL

        return QuorumSaslConnection(self, seconds, self._security.sasl, self._clock)

    async def open(self) -> None:
        """Bind and serve.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, the address can't be bound.
        """
        try:
            await self._acceptor.start()
        except OSError as problem:
            text = f"Socket server failed to bind to {self._at.address}: {problem.strerror or problem}"
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, f"{text}; choose another port in listeners") from None
        self._watch_idle()

    def _watch_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._idle_seconds
        for connection in [one for one in self._connections if one.is_idle and one.used_seconds < oldest]:
            connection.close()
        self._idle_timer = loop.call_later(max(1.0, self._idle_seconds / 4), self._watch_idle)

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client with this certificate, in DER; None: it is not served."""
        return self._security.principal_of(certificate)

    def opened(self, connection: QuorumConnection) -> bool:
        """Count a connection; return whether there is room for it."""
        if len(self._connections) >= MOST_CONNECTIONS:
            LOG.warning("Closing the connection of /%s: %d are open", connection.peer_host, MOST_CONNECTIONS)
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: QuorumConnection) -> None:
        """Forget a connection."""
        self._slots.release(self._at.name)
        self._connections.discard(connection)

    async def close(self) -> None:
        """Accept nothing more, and close all connections."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await self._acceptor.stop()
        for connection in list(self._connections):
            connection.close()
