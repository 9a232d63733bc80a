"""The connection with ZooKeeper, led through a pair of sockets so that its bytes can be held up.

Contract: ``dial`` is between kazoo and the network: it opens the real connection and gives kazoo one end of a pair
of sockets; a thread of its own carries the bytes between. So a partition is one of the network, as kazoo and ZooKeeper
see it: no byte passes, no end of the connection is seen, and the session expires on the server.

Rules:
    1. Out is the broker's direction, in is the responses'. Bytes of a partitioned direction wait, as TCP would send
       them again, and pass when the partition heals. A new connection needs both directions, and is refused otherwise.
    2. When kazoo gives a connection up, what still waits in it is dropped.
    3. A delay applies to each piece; the order stays.

Threads: ``dial`` is called by kazoo's, ``change`` by the broker's loop; everything else happens on the link's own loop.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tidegauge_broker.server.lab.fault_table import IN, OUT, ZOOKEEPER, FaultTable

_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Weather:
    """The state of one direction: partitioned or delayed."""

    is_partitioned: bool = False
    delay_seconds: float = 0.0


class ZooKeeperLink:
    """All connections of this broker with ZooKeeper.

    Args:
        faults: those that apply to them; they are read on the broker's loop.
    """

    def __init__(self, faults: FaultTable) -> None:
        self._faults = faults
        self._weather = {IN: _Weather(), OUT: _Weather()}
        self._halves: set[_Half] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="zookeeper-link", daemon=True)
        self._thread.start()
        faults.listeners.append(self.change)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def dial(self, connect: Callable[[], socket.socket]) -> socket.socket:
        """Open a connection; called by kazoo's thread.

        Raises:
            OSError: there is none, or none gets through.
        """
        if any(weather.is_partitioned for weather in self._weather.values()):
            raise ConnectionRefusedError("refused by the lab")
        real = connect()
        ours, kazoos = socket.socketpair()
        joined = asyncio.run_coroutine_threadsafe(self._join(ours, real), self._loop)
        try:
            joined.result(_PATIENCE_SECONDS)
        except Exception as problem:
            for end in (real, ours, kazoos):
                end.close()
            raise ConnectionError(f"the link to ZooKeeper failed: {problem}") from problem
        return kazoos

    async def _join(self, ours: socket.socket, real: socket.socket) -> None:
        loop = self._loop
        for end in (ours, real):
            end.setblocking(False)
        _, near = await loop.create_connection(lambda: _Half(self, is_near=True), sock=ours)
        _, far = await loop.create_connection(lambda: _Half(self, is_near=False), sock=real)
        near.join(far)
        far.join(near)

    def change(self) -> None:
        """Apply changed faults. Called on the broker's loop; returns when the change is in force."""
        weather = {}
        for way in (IN, OUT):
            is_partitioned = self._faults.network(way, ZOOKEEPER, count=False).refused_by is not None
            delay_ms = 0 if is_partitioned else self._faults.network(way, ZOOKEEPER).delay_ms
            weather[way] = _Weather(is_partitioned, delay_ms / 1000)
        if weather == self._weather:
            return
        done = threading.Event()

        def take_over() -> None:
            self._weather = weather
            for half in list(self._halves):
                half.flush()
            done.set()

        self._loop.call_soon_threadsafe(take_over)
        done.wait(_PATIENCE_SECONDS)

    def close(self) -> None:
        """End the link: the broker stops, and kazoo has closed its sockets before."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(_PATIENCE_SECONDS)

    def _end(self) -> None:
        for half in list(self._halves):
            half.abort()
        self._loop.call_soon(self._loop.stop)

    # For the halves, on the link's loop

    def weather(self, *, is_near: bool) -> _Weather:
        """Return what happens to the bytes that come in at this half."""
        return self._weather[OUT if is_near else IN]

    def add(self, half: _Half) -> None:
        """Register a connected half."""
        self._halves.add(half)

    def remove(self, half: _Half) -> None:
        """Forget a half whose connection is closed."""
        self._halves.discard(half)


class _Half(asyncio.Protocol):
    """One end of a connection: what it reads goes to the other half."""

    def __init__(self, link: ZooKeeperLink, *, is_near: bool) -> None:
        self._link = link
        self._is_near = is_near
        self._transport: asyncio.Transport | None = None
        self._other: _Half | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def join(self, other: _Half) -> None:
        """Pass the bytes to this half from now on."""
        self._other = other
        self.flush()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the open connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._link.add(self)

    def data_received(self, data: bytes) -> None:
        """Queue bytes that came in; an empty piece is the connection's end."""
        delay = self._link.weather(is_near=self._is_near).delay_seconds
        self._waiting.append((asyncio.get_running_loop().time() + delay, data))
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the connection's end on; rule 2."""
        del exc
        self._link.remove(self)
        if self._is_near and self._link.weather(is_near=True).is_partitioned:
            self._waiting.clear()
            if self._other is not None:
                self._other.abort()
            return
        self.data_received(b"")

    def flush(self) -> None:
        """Pass on what may pass."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._other is None or self._link.weather(is_near=self._is_near).is_partitioned:
            return
        while self._waiting:
            due, data = self._waiting[0]
            if due > loop.time():
                self._timer = loop.call_at(due, self.flush)
                return
            self._waiting.popleft()
            self._other.write(data)

    def write(self, data: bytes) -> None:
        """Send on; the empty piece ends the connection."""
        if self._transport is None or self._transport.is_closing():
            return
        if data:
            self._transport.write(data)
        else:
            self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()
