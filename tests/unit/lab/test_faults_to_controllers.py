"""Requests of a broker in KRaft mode to controllers meet the faults in that broker, and no other ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.messages import to_message
from tidegauge.faults.model import FaultKind
from tidegauge.faults.table import HOLD_REQUESTS, INJECT_ERROR, ISOLATE
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages.alter_partition import AlterPartitionResponse
from tidegauge.kafka.kraft.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_broker.log.files import DISK
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.fault_table import IN, OUT, FaultTable, Place
from tidegauge_broker.server.lab.to_controllers import ControllersLab
from tidegauge_broker.server.quorum.calls import Call, Served

BEAT = BrokerHeartbeatRequest(1, 5, 10, False, False)
TRUE_RESPONSE = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


def table(place: Place = Place.KRAFT_BROKER, node_id: int = 1) -> FaultTable:
    return FaultTable(node_id, DiskFaults(sleep=lambda _: None), place=place)


def put(faults: FaultTable, kind: FaultKind, **values: Any) -> int:
    return faults.set(to_message(kind.wanted({name.rstrip("_"): value for name, value in values.items()}))).fault_id


class Nodes:
    """Controller 3000 listens at one address; of others nothing is known."""

    def at(self, address: str) -> int | None:
        return 3000 if address == "127.0.0.1:9392" else None

    def is_controller(self, node_id: int) -> bool:
        return node_id == 3000


class World:
    """A broker's channel to its controller, whose connection is played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults = table()
        self.sent: list[int] = []

        async def request(_: KafkaChannel, key: int, message: Any, timeout_seconds: float, **more: Any) -> Any:
            del message, timeout_seconds, more
            self.sent.append(key)
            return TRUE_RESPONSE

        monkeypatch.setattr(KafkaChannel, "request", request)
        self.lab = ControllersLab(self.faults, lambda _: DISK)

    async def begin(self) -> None:
        await self.lab.start(Nodes(), lambda _: None)  # type: ignore[arg-type] # has the methods used

    async def ask(self, key: int = apis.BROKER_HEARTBEAT, address: str = "127.0.0.1:9392", limit: float = 9.0) -> Any:
        return await self.lab.open_channel(address, "1").request(key, BEAT, limit)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(monkeypatch)
    await made.begin()
    return made


async def test_without_a_fault_requests_pass(world: World) -> None:
    assert await world.ask() is TRUE_RESPONSE
    put(world.faults, ISOLATE, from_="brokers")
    put(world.faults, INJECT_ERROR, rpc="Vote", error="NOT_CONTROLLER")
    assert await world.ask() is TRUE_RESPONSE, "controllers are no brokers, and heartbeats no votes"


@pytest.mark.parametrize("ends", ["controllers", "zookeeper", [3000, 2]])
async def test_a_partition_from_controllers_refuses_each_request_at_once(world: World, ends: Any) -> None:
    """ZooKeeper's part is the controllers' in KRaft mode, so its name means them."""
    put(world.faults, ISOLATE, from_=ends)
    for key in (apis.BROKER_HEARTBEAT, apis.FETCH, apis.ENVELOPE):
        with pytest.raises(TidegaugeError) as refused:
            await world.ask(key)
        assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
    assert world.sent == []
    world.faults.clear()
    assert await world.ask() is TRUE_RESPONSE


async def test_a_partition_from_one_controller_leaves_the_others(world: World) -> None:
    put(world.faults, ISOLATE, from_=[3000])
    assert await world.ask(address="127.0.0.1:9393") is TRUE_RESPONSE
    with pytest.raises(TidegaugeError):
        await world.ask()


async def test_an_error_takes_the_place_of_the_response_before_or_after_the_effect(world: World) -> None:
    put(world.faults, INJECT_ERROR, rpc="AlterPartition", error="FENCED_LEADER_EPOCH")
    response = await world.ask(apis.ALTER_PARTITION)
    assert (type(response), response.error_code) == (AlterPartitionResponse, ErrorCode.FENCED_LEADER_EPOCH)
    assert world.sent == []
    put(world.faults, INJECT_ERROR, rpc="BrokerHeartbeat", error="NOT_CONTROLLER", after_effect=True)
    assert (await world.ask()).error_code == ErrorCode.NOT_CONTROLLER
    assert world.sent == [apis.BROKER_HEARTBEAT]
    put(world.faults, INJECT_ERROR, rpc="BrokerRegistration", grpc_status="UNAVAILABLE")
    with pytest.raises(TidegaugeError) as ended:
        await world.ask(apis.BROKER_REGISTRATION)
    assert ended.value.code is ErrorCode.NETWORK_EXCEPTION


async def test_a_held_request_goes_on_when_it_is_released_and_ends_at_its_time(world: World) -> None:
    number = put(world.faults, HOLD_REQUESTS, rpc="BrokerHeartbeat")
    with pytest.raises(TidegaugeError) as late:
        await world.ask(limit=0.0)
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    asked = asyncio.ensure_future(world.ask())
    for _ in range(3):
        await asyncio.sleep(0)
    assert (world.sent, world.faults.listed()[0].held) == ([], 1)
    assert await world.ask(apis.ALTER_PARTITION) is TRUE_RESPONSE, "others are not held"
    world.faults.clear([number])
    assert await asked is TRUE_RESPONSE


async def test_a_broker_that_stops_waits_for_no_held_response(world: World) -> None:
    put(world.faults, HOLD_REQUESTS, rpc="BrokerHeartbeat", after_effect=True)
    asked = asyncio.ensure_future(world.ask())
    for _ in range(3):
        await asyncio.sleep(0)
    assert world.sent == [apis.BROKER_HEARTBEAT]
    world.faults.close()
    with pytest.raises(TidegaugeError) as ended:
        await asked
    assert ended.value.code is ErrorCode.NETWORK_EXCEPTION


def test_controllers_are_an_end_in_kraft_mode_alone() -> None:
    """A fault that no call can meet is refused, with the way out."""
    with pytest.raises(TidegaugeError, match=r"in KRaft mode alone .*zookeeper is what"):
        put(table(Place.BROKER), ISOLATE, from_="controllers")
    with pytest.raises(TidegaugeError, match="the direction is out or both"):
        put(table(), ISOLATE, from_="controllers", direction="in")
    put(table(Place.CONTROLLER, 3001), ISOLATE, from_="controllers", direction="in")


def test_at_a_controller_both_kinds_of_nodes_have_an_end_of_their_own() -> None:
    faults = table(Place.CONTROLLER, 3001)
    put(faults, ISOLATE, from_="controllers")
    assert faults.network(IN, fault_table.controller(3000)).refused_by
    assert not faults.network(OUT, fault_table.controller(3001)).refused_by, "never from itself"
    assert not faults.network(IN, fault_table.broker(0)).refused_by
    put(faults, ISOLATE, from_="brokers", direction="in")
    assert faults.network(IN, fault_table.broker(0)).refused_by


# In a process that is a controller, too

VOTE = next(key for key, api in apis.KRAFT_APIS.items() if api.name == "Vote")


ANOTHERS = BrokerHeartbeatRequest(2, 5, 10, False, False)


class Combined:
    """The controller's listener of a process with both roles; each handler responds at once with its API's key."""

    def __init__(self, world: World) -> None:
        self.responses: list[Any] = []
        keys = (apis.FETCH, VOTE, apis.BROKER_HEARTBEAT)
        self._handlers = world.lab.gated({key: Served(key, lambda call: call.respond(call.key)) for key in keys})

    async def arrives(self, key: int, client_id: str, message: Any = None) -> bool:
        """Let a request arrive; return whether it was responded to."""
        self.responses.clear()
        call = Call(
            key, 0, message, self.responses.append, lambda error, _: self.responses.append(error), client_id=client_id
        )
        self._handlers[key].handle(call)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.responses == [key]


async def test_a_node_with_both_roles_is_parted_as_a_controller_and_as_a_broker(world: World) -> None:
    """The sender is known by the kind of request: a process with both roles sends both kinds."""
    combined = Combined(world)
    number = put(world.faults, ISOLATE, from_="controllers", direction="in")
    assert not await combined.arrives(VOTE, "raft-client-3000")
    assert await combined.arrives(apis.BROKER_HEARTBEAT, "2", ANOTHERS)
    world.faults.clear([number])
    put(world.faults, ISOLATE, from_="brokers")
    assert await combined.arrives(VOTE, "raft-client-3000")
    assert not await combined.arrives(VOTE, "raft-client-7"), "an observer of the quorum is a broker"
    assert not await combined.arrives(apis.BROKER_HEARTBEAT, "2", ANOTHERS)


async def test_a_fault_of_heartbeats_means_those_that_the_node_sends_and_no_others(world: World) -> None:
    """As at a broker alone: a heartbeat to its own controller would meet the fault twice."""
    combined = Combined(world)
    put(world.faults, INJECT_ERROR, rpc="BrokerHeartbeat", error="NOT_CONTROLLER")
    put(world.faults, INJECT_ERROR, rpc="Vote", error="NOT_CONTROLLER")
    assert await combined.arrives(apis.BROKER_HEARTBEAT, "2", ANOTHERS)
    assert not await combined.arrives(VOTE, "raft-client-3000")
    assert (await world.ask()).error_code == ErrorCode.NOT_CONTROLLER


async def test_held_fetches_of_the_metadata_log_wait_and_other_requests_pass(world: World) -> None:
    """A hold ends at the request's own timeout, so that a voter stands for election."""
    await world.lab.held.hold()
    waiting = asyncio.ensure_future(world.ask(apis.FETCH))
    assert await world.ask() is TRUE_RESPONSE
    assert not waiting.done()
    world.lab.held.release()
    assert await waiting is TRUE_RESPONSE
    await world.lab.held.hold()
    with pytest.raises(TidegaugeError, match="held by the lab"):
        await world.ask(apis.FETCH, limit=0.0)
