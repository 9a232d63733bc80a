"""The CONTROLLER listener: Kafka's protocol, with the APIs that the nodes of a quorum and its tools call.

Rules (Kafka's SocketServer and ControllerApis):
    1. A frame of a wrong size, an unknown API or version, and a body that can't be read close the connection, with one
       line in the log. ApiVersions of an unknown version is responded to, in version 0 (KIP-511).
    2. A connection's requests are handled one at a time; nothing more is read while one waits for its response, or
       while the client does not take the responses that it has.
    3. A connection that is idle for ``connections.max.idle.ms`` is closed, below 0 none is. There are at most
       ``MOST_CONNECTIONS``.
    4. A large message is decoded and encoded in slices, so that other connections are served meanwhile (``turns``).
       There is one large request at a time, from its message to its response (``large_room``).
    5. A client is who its certificate says on an SSL listener, and User:ANONYMOUS on one without SASL else; those of
       listeners with SASL authenticate themselves first (``sasl_connection``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import Listener
from tidegauge.principal import Principal
from tidegauge_broker.server.quorum.calls import Served
from tidegauge_broker.server.quorum.connection import QuorumConnection
from tidegauge_broker.server.quorum.large_room import LargeRoom
from tidegauge_broker.server.quorum.listener_security import OPEN, ListenerSecurity
from tidegauge_broker.server.wire.connection_rates import ConnectionRates
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots
from tidegauge_broker.server.wire.kafka.acceptor import Acceptor
from tidegauge_broker.server.wire.kafka.turns import Turns

LOG = logging.getLogger("tidegauge.quorum")
MOST_CONNECTIONS = 1000


class QuorumListener:
    """One address and its connections.

    Args:
        at: the address to bind.
        handlers: the APIs that are served, by key.
        max_request_bytes: the largest frame.
        idle_seconds: how long a connection may be idle; below 0: for any time.
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
        self.turns = Turns()
        self.large_room = LargeRoom()
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
        if self._idle_seconds >= 0:
            self._watch_idle()

    def _watch_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._idle_seconds
        for connection in [one for one in self._connections if one.is_idle and one.used_seconds < oldest]:
            connection.close()
        self._idle_timer = loop.call_later(max(1.0, self._idle_seconds / 4), self._watch_idle)

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client's DER certificate; None: not served."""
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
