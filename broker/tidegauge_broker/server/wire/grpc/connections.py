"""A broker's connections, counted by listener and address, and ``max.connections.per.ip``.

gRPC accepts connections by itself and reports none. But they are this process's own sockets: those bound to the port
of a listener that have a peer. They are looked for when a metric is asked for, and, only where the limit is set,
every ``LOOK_EVERY_SECONDS``: the first ones of an address stay, the others are shut down, which gRPC sees as
a client that has disconnected. So a connection above the limit may stay open for that time (Kafka closes it as it
accepts it).

Source: ConnectionQuotas, SocketServer (the sentence in the log).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from tidegauge.host_addresses import java_host
from tidegauge.settings import INT_MAX
from tidegauge_broker.server.periodic import Periodic

LOG = logging.getLogger("tidegauge.broker")
LOOK_EVERY_SECONDS = 0.2
_DESCRIPTORS = Path("/dev/fd")


class Peer(NamedTuple):
    """The other end of a connection, and the port that it is connected to."""

    host: str
    port: int
    listener_port: int


class Connections:
    """The gRPC connections of a broker, by listener and address.

    Args:
        listeners: their names by port.
        most_per_ip: the limit.
    """

    def __init__(self, listeners: Mapping[int, str], most_per_ip: int) -> None:
        self._listeners = dict(listeners)
        self._most_per_ip = most_per_ip
        self._known: dict[Peer, None] = {}
        self._shut_down: set[Peer] = set()
        self._task: Periodic | None = None

    def watch(self) -> None:
        """Hold the limit from now on, if there is one."""
        if self._most_per_ip < INT_MAX:
            self._task = Periodic("connections", int(LOOK_EVERY_SECONDS * 1000), self.hold_limit)

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            await self._task.close()

    def counts(self) -> dict[str, int]:
        """Return the number of connections by the listener's name."""
        found = Counter(self._listeners[peer.listener_port] for peer, _ in self._accepted())
        return {name: found[name] for name in self._listeners.values()}

    async def hold_limit(self) -> None:
        """Shut down the connections above the limit; the oldest ones of an address stay."""
        now = dict(self._accepted())
        self._shut_down &= now.keys()
        self._known = {peer: None for peer in self._known if peer in now} | dict.fromkeys(now)
        taken: Counter[str] = Counter()
        for peer in self._known:
            if peer in self._shut_down:
                continue
            taken[peer.host] += 1
            if taken[peer.host] > self._most_per_ip and _shut_down(now[peer], peer):
                self._shut_down.add(peer)
                LOG.info(
                    "Rejected connection from /%s, address already has the configured maximum of %d connections "
                    "(max.connections.per.ip).",
                    peer.host,
                    self._most_per_ip,
                )

    def close_peer(self, name: str) -> None:
        """Close the connection of a peer, by gRPC's name for it: ``ipv4:HOST:PORT`` or ``ipv6:[HOST]:PORT``.

        The connection is shut down; gRPC then ends its calls and frees what they hold.
        """
        host, _, port = unquote(name).partition(":")[2].rpartition(":")
        wanted = (java_host(host.strip("[]")), int(port) if port.isdigit() else -1)
        for peer, descriptor in self._accepted():
            if (peer.host, peer.port) == wanted:
                _shut_down(descriptor, peer)

    def _accepted(self) -> Iterator[tuple[Peer, int]]:
        """All connections, with their descriptors."""
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - names alone are wanted, thousands of them
            with contextlib.suppress(OSError):  # it was closed meanwhile
                descriptor = int(name)
                peer = _peer_of(descriptor)
                if peer is not None and peer.listener_port in self._listeners:
                    yield peer, descriptor


def _peer_of(descriptor: int) -> Peer | None:
    """Return a descriptor's peer, leaving it open; None: no TCP connection."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return None
    looked_at = socket.socket(fileno=descriptor)
    try:
        if looked_at.family not in {socket.AF_INET, socket.AF_INET6} or looked_at.type != socket.SOCK_STREAM:
            return None
        host, port = looked_at.getpeername()[:2]
        return Peer(java_host(str(host)), int(port), int(looked_at.getsockname()[1]))
    finally:
        looked_at.detach()


def _shut_down(descriptor: int, peer: Peer) -> bool:
    """End a connection, if the descriptor still is that one's; gRPC closes it when it reads the end."""
    try:
        doomed = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False
    with doomed, contextlib.suppress(OSError):
        if _peer_of(doomed.fileno()) == peer:
            doomed.shutdown(socket.SHUT_RDWR)
            return True
    return False
