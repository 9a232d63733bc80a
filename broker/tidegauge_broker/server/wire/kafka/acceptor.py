"""Accepts the connections of one Kafka listener, no faster than the quotas of connections allow.

Rules (Kafka's Acceptor, ConnectionQuotas.inc):
    1. A listener that must slow down, or has no slot for another connection (``ConnectionSlots``), accepts nothing
       meanwhile: one connection waits here, the others in the backlog of its sockets.
    2. A connection above the quota of its address is accepted, and closed after its delay without having been served.
    3. Where the process has no descriptor left, the listener pauses for a second, and says so.

The numbers come from ``ConnectionRates``. TLS handshakes run side by side; one that fails has a line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from tidegauge.handshakes import peer_reason
from tidegauge.host_addresses import peer_host
from tidegauge.listeners import Listener
from tidegauge_broker.server.wire.connection_rates import ConnectionRates
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots

LOG = logging.getLogger("tidegauge.kafka")
_BACKLOG = 1_000
_TURN = 50
"""Connections that are accepted before the event loop serves others."""
_PAUSE_SECONDS = 1.0
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts the connections of one Kafka listener.

    Args:
        at: the address.
        tls: of a listener with TLS.
        rates: the quotas of all listeners.
        slots: the slots of all listeners; who owns the protocols releases theirs.
        now_ms: the broker's clock.
        make: makes the protocol of a connection.
    """

    def __init__(
        self,
        at: Listener,
        tls: ssl.SSLContext | None,
        rates: ConnectionRates,
        slots: ConnectionSlots,
        now_ms: Callable[[], int],
        make: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._at = at
        self._tls = tls
        self._rates = rates
        self._slots = slots
        self._now_ms = now_ms
        self._make = make
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._throttled: dict[socket.socket, asyncio.TimerHandle] = {}

    async def start(self) -> None:
        """Bind every address that the listener's host has, and accept.

        Raises:
            OSError: one can't be bound.
        """
        await self.bind()
        self.accept()

    def accept(self) -> None:
        """Accept connections at the addresses that are bound; until now they were refused.

        Raises:
            OSError: another process listens at one of them.
        """
        for one in self._sockets:
            one.listen(_BACKLOG)
        for one in self._sockets:
            self._begin(self._accept(one))

    async def bind(self) -> None:
        """Bind every address that the listener's host has.

        Raises:
            OSError: one can't be bound.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self._at.host or None, self._at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._bind(family, kind, protocol, address)
        except OSError:
            await self.stop()
            raise

    def _bind(self, family: int, kind: int, protocol: int, address: object) -> None:
        made = socket.socket(family, kind, protocol)
        self._sockets.append(made)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)  # type: ignore[arg-type] # of this family

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"accept-{self._at.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        count = 0
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as problem:
                if problem.errno not in _NO_ROOM:
                    continue  # the client has left again
                LOG.error("Listener %s accepts nothing for a second: %s", self._at.name, problem.strerror)  # noqa: TRY400 - it says all
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                await self._admit(connection, peer_host(peer))
            except asyncio.CancelledError:
                connection.close()
                raise
            count += 1
            if not count % _TURN:
                await asyncio.sleep(0)

    async def _admit(self, connection: socket.socket, host: str) -> None:
        throttle_ms = self._rates.accepted(self._at.name, self._now_ms())
        if throttle_ms:
            LOG.debug("Listener %s accepts nothing for %d ms: its quota is exceeded", self._at.name, throttle_ms)
            await asyncio.sleep(throttle_ms / 1000)
        await self._slots.until_free(self._at.name)
        throttle_ms = self._rates.refused(self._at.name, host, self._now_ms())
        if throttle_ms:
            LOG.debug("Delaying closing of connection from /%s for %d ms", host, throttle_ms)
            later = asyncio.get_running_loop().call_later(throttle_ms / 1000, self._close_throttled, connection)
            self._throttled[connection] = later
        else:
            self._slots.take(self._at.name)
            self._begin(self._serve(connection, host))

    def _close_throttled(self, connection: socket.socket) -> None:
        self._throttled.pop(connection).cancel()
        connection.close()

    async def _serve(self, connection: socket.socket, host: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection, ssl=self._tls)
        except ssl.SSLError as problem:
            self._slots.release(self._at.name)
            said = getattr(problem, "verify_message", None) or problem.reason or str(problem)
            LOG.info("Failed authentication with /%s (SSL handshake failed): %s", host, peer_reason(said))
        except OSError as problem:
            self._slots.release(self._at.name)
            LOG.debug("The connection of /%s ended before it began: %s", host, problem)

    async def stop(self) -> None:
        """Accept nothing more; connections that are served already stay."""
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for connection in list(self._throttled):
            self._close_throttled(connection)
        for one in self._sockets:
            one.close()
        self._sockets.clear()
