"""Control requests: sent in order, one in flight, repeated until they arrive, dropped with their broker.

The wire is replaced by a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.waiting import until_async

from tidegauge.control import ControlHeader, Endpoint, PartitionsResponse, StopReplicaRequest, UpdateMetadataRequest
from tidegauge.errors import ErrorCode
from tidegauge_controller.zookeeper import channels
from tidegauge_controller.zookeeper.channels import Channels
from tidegauge_controller.zookeeper.control_links import Undelivered
from tidegauge_controller.zookeeper.decisions.steps import ControlRequest

AT_7 = Endpoint(7, "127.0.0.1", 1)
AT_8 = Endpoint(8, "127.0.0.1", 2)


def request(number: int) -> UpdateMetadataRequest:
    """Distinguished from others by its broker epoch."""
    return UpdateMetadataRequest(ControlHeader(0, 1, number), (), ())


class Wire:
    """The requests sent to brokers; ``down`` names brokers that do not respond, ``hold`` keeps responses back."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.responded: list[tuple[int, int]] = []
        self.down: set[str] = set()
        self.refused = 0
        self.defects: list[Exception] = []
        self.closed: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.in_flight = 0

    async def call(self, address: str, message: ControlRequest) -> PartitionsResponse:
        if self.defects:
            raise self.defects.pop()
        if address in self.down:
            self.refused += 1
            await asyncio.sleep(0)
            raise Undelivered("there is nobody")
        self.in_flight += 1
        assert self.in_flight == 1, "one request in flight for each broker"
        self.sent.append((address, message.header.broker_epoch))
        await self.hold.wait()
        self.in_flight -= 1
        return PartitionsResponse(ErrorCode.NONE)

    def respond(self, broker_id: int, message: ControlRequest, _response: PartitionsResponse) -> None:
        self.responded.append((broker_id, message.header.broker_epoch))


class Link:
    """The way to one broker."""

    def __init__(self, wire: Wire, address: str) -> None:
        self._wire = wire
        self._address = address

    async def send(self, request: ControlRequest) -> PartitionsResponse:
        return await self._wire.call(self._address, request)

    async def close(self) -> None:
        self._wire.closed.append(self._address)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(channels, "RETRY_BACKOFF_SECONDS", 0)
    return made


@pytest.fixture
async def queues(wire: Wire) -> AsyncIterator[Channels]:
    made = Channels(wire.respond, lambda endpoint: Link(wire, endpoint.address))
    yield made
    await made.close()


async def test_a_broker_gets_its_requests_one_after_the_other_in_order(queues: Channels, wire: Wire) -> None:
    queues.add(AT_7)
    wire.hold.clear()
    for number in range(5):
        queues.send(7, request(number))

    async def first_is_out() -> bool:
        return wire.sent == [("127.0.0.1:1", 0)]

    await until_async(first_is_out)
    wire.hold.set()

    async def all_are_acknowledged() -> bool:
        return wire.responded == [(7, number) for number in range(5)]

    await until_async(all_are_acknowledged)
    assert [number for _, number in wire.sent] == [0, 1, 2, 3, 4]


async def test_what_does_not_arrive_is_sent_again_and_nothing_overtakes_it(queues: Channels, wire: Wire) -> None:
    wire.down.add(AT_7.address)
    queues.add(AT_7)
    queues.add(AT_8)
    queues.send(7, request(1))
    queues.send(7, request(2))
    queues.send(8, request(3))

    async def the_other_is_served() -> bool:
        return wire.responded == [(8, 3)]

    await until_async(the_other_is_served)
    wire.down.clear()

    async def all_are_acknowledged() -> bool:
        return wire.responded == [(8, 3), (7, 1), (7, 2)]

    await until_async(all_are_acknowledged)


async def test_a_broker_that_moved_gets_its_requests_at_its_new_address(queues: Channels, wire: Wire) -> None:
    """The request that does not arrive at the former address, and all behind it, in order; the other's stay."""
    wire.down.add(AT_7.address)
    queues.add(AT_7)
    queues.add(AT_8)
    queues.send(7, request(1))
    queues.send(7, request(2))

    async def is_tried() -> bool:
        return wire.refused > 0

    await until_async(is_tried)
    queues.move(Endpoint(7, "localhost", 9))
    queues.move(Endpoint(6, "localhost", 6))  # there is no such broker
    queues.send(7, request(3))
    queues.send(8, request(4))

    async def all_are_acknowledged() -> bool:
        return len(wire.responded) == 4

    await until_async(all_are_acknowledged)
    assert [sent for sent in wire.sent if sent[0] != AT_8.address] == [("localhost:9", number) for number in (1, 2, 3)]
    assert (AT_8.address, 4) in wire.sent
    assert wire.closed == [AT_7.address]


async def test_a_dead_broker_takes_its_queue_with_it(queues: Channels, wire: Wire) -> None:
    """Also when it comes back at once: requests for its former registration are not sent to the new one."""
    wire.down.add(AT_7.address)
    queues.add(AT_7)
    queues.send(7, request(1))
    queues.remove(7)
    queues.send(7, request(2))  # there is no such broker
    wire.down.clear()
    queues.add(AT_7)
    queues.send(7, StopReplicaRequest(ControlHeader(0, 1, 3), ()))

    async def only_the_last() -> bool:
        return wire.responded == [(7, 3)]

    await until_async(only_the_last)
    queues.clear()
    queues.send(7, request(4))
    assert wire.sent == [("127.0.0.1:1", 3)]


async def test_a_defect_of_a_link_is_an_attempt_that_failed(queues: Channels, wire: Wire) -> None:
    """A broker to which nothing more is sent would neither lead nor follow until another controller is elected."""
    wire.defects += [ValueError("no address"), UnicodeError("label too long")]
    queues.add(AT_7)
    queues.send(7, request(1))
    queues.send(7, request(2))

    async def all_are_acknowledged() -> bool:
        return wire.responded == [(7, 1), (7, 2)]

    await until_async(all_are_acknowledged)
    assert wire.closed == [AT_7.address] * 2, "the next attempt has a link of its own"


async def test_a_response_that_cannot_be_taken_ends_no_queue(wire: Wire) -> None:
    """It concerns that response alone."""
    taken = []

    def take(_broker_id: int, message: ControlRequest, _response: PartitionsResponse) -> None:
        taken.append(message.header.broker_epoch)
        if len(taken) == 1:
            raise RuntimeError("defect")

    queues = Channels(take, lambda endpoint: Link(wire, endpoint.address))
    queues.add(AT_7)
    queues.send(7, request(1))
    queues.send(7, request(2))

    async def both_are_taken() -> bool:
        return taken == [1, 2]

    await until_async(both_are_taken)
    await queues.close()
