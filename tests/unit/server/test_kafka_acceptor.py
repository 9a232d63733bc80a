"""A Kafka listener accepts connections as fast as its quotas allow (Kafka's Acceptor, KIP-402, KIP-612)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import until_async

from tidegauge.listeners import Listener
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots
from tidegauge_broker.server.wire.kafka.acceptor import Acceptor

FOR_EVER_MS = 10**9


class Rates:
    """Quotas that say what the test says."""

    def __init__(self, accepted: list[int], refused: list[int]) -> None:
        self._accepted, self._refused = accepted, refused
        self.asked = 0

    def accepted(self, listener: str, now_ms: int) -> int:
        assert (listener, now_ms) == ("PLAINTEXT", 5)
        self.asked += 1
        return self._accepted.pop(0) if self._accepted else 0

    def refused(self, listener: str, address: str, now_ms: int) -> int:
        assert (address, now_ms) == ("127.0.0.1", 5)
        return self._refused.pop(0) if self._refused else 0


class Served(asyncio.Protocol):
    """Echoes one byte."""

    count = 0

    def connection_made(self, transport: Any) -> None:
        type(self).count += 1
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"x")
    return await reader.read(1)


@pytest.fixture
async def listen() -> Any:
    begun: list[Acceptor] = []
    opened: list[asyncio.StreamWriter] = []
    Served.count = 0

    async def start(rates: Any, slots: ConnectionSlots | None = None) -> Callable[[], Any]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        at = Listener("PLAINTEXT", "127.0.0.1", port)
        acceptor = Acceptor(at, None, rates, slots or ConnectionSlots(), lambda: 5, Served)
        await acceptor.start()
        begun.append(acceptor)

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append(writer)
            return reader, writer

        return connect

    yield start
    for writer in opened:
        writer.transport.abort()
    for acceptor in begun:
        await acceptor.stop()


async def test_above_the_rate_connections_wait_and_those_that_are_there_are_served(listen: Any) -> None:
    rates = Rates([0, FOR_EVER_MS], [])
    connect = await listen(rates)
    first = await connect()
    assert await echo(*first) == b"x"
    late, later = await connect(), await connect()

    async def is_held() -> bool:
        return rates.asked == 2

    await until_async(is_held)
    for connection in (late, later):
        connection[1].write(b"x")
    assert await echo(*first) == b"x"
    assert Served.count == 1, "neither refused nor served"
    assert not late[0].at_eof()
    assert not later[0].at_eof()
    assert rates.asked == 2, "the next one waits in the backlog"


async def test_above_max_connections_one_waits_until_another_is_closed(listen: Any) -> None:
    """waitForConnectionSlot: it is neither refused nor served meanwhile."""
    rates, slots = Rates([], []), ConnectionSlots(2)
    connect = await listen(rates, slots)
    assert [await echo(*await connect()) for _ in range(2)] == [b"x"] * 2
    late = await connect()
    late[1].write(b"x")

    async def is_held() -> bool:
        return rates.asked == 3

    await until_async(is_held)
    assert (Served.count, slots.taken("PLAINTEXT"), late[0].at_eof()) == (2, 2, False)
    slots.release("PLAINTEXT")
    assert await late[0].read(1) == b"x"
    assert slots.taken("PLAINTEXT") == 2


async def test_a_connection_that_is_refused_takes_no_slot(listen: Any) -> None:
    slots = ConnectionSlots(1)
    connect = await listen(Rates([], [1]), slots)
    reader, _ = await connect()
    assert await reader.read() == b""
    assert slots.taken("PLAINTEXT") == 0


async def test_a_listener_goes_on_after_its_delay(listen: Any) -> None:
    connect = await listen(Rates([1, 1, 1], []))
    assert [await echo(*await connect()) for _ in range(5)] == [b"x"] * 5


async def test_a_connection_above_the_quota_of_its_address_is_closed_and_not_served(listen: Any) -> None:
    connect = await listen(Rates([], [0, 1, FOR_EVER_MS]))
    assert await echo(*await connect()) == b"x"
    reader, _ = await connect()
    assert await reader.read() == b""
    await connect()
    assert await echo(*await connect()) == b"x", "the listener does not wait for it"
    assert Served.count == 2


async def test_a_listener_out_of_descriptors_pauses_and_goes_on(listen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    accept, pauses = loop.sock_accept, []

    async def sock_accept(listening: socket.socket) -> Any:
        if not pauses:
            pauses.append(1)
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    monkeypatch.setattr("tidegauge_broker.server.wire.kafka.acceptor._PAUSE_SECONDS", 0.001)
    connect = await listen(Rates([], []))
    assert await echo(*await connect()) == b"x"


async def test_an_address_that_is_taken_is_refused(listen: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = Listener("PLAINTEXT", "127.0.0.1", taken.getsockname()[1])
        rates: Any = Rates([], [])
        with pytest.raises(OSError, match="Address already in use"):
            await Acceptor(at, None, rates, ConnectionSlots(), lambda: 5, Served).start()


async def test_an_address_that_is_bound_refuses_connections_until_it_is_open(listen: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rates: Any = Rates([], [])
    acceptor = Acceptor(Listener("PLAINTEXT", "127.0.0.1", port), None, rates, ConnectionSlots(), lambda: 5, Served)
    await acceptor.bind()
    try:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        acceptor.accept()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await echo(reader, writer) == b"x"
        writer.transport.abort()
    finally:
        await acceptor.stop()
