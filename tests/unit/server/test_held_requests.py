"""Holds of requests (lab/barrier.py) on Kafka's wire: what waits, what does not, and what lets it go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka_peer import Client, Listener

from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidegauge.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.wire.kafka.responses import Held

JOIN_GROUP, HEARTBEAT = 11, 12


class Counted:
    """A response that counts among those not yet written."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Broker:
    """A Kafka listener behind the lab's gate."""

    def __init__(self) -> None:
        self.faults = FaultTable(0, DiskFaults(sleep=lambda _: None))
        self.listener = Listener()
        self.listener.gate = LabGate(self.faults)
        self.handled: list[int] = []
        self.pending = Counted()
        self.listener.handlers = {
            HEARTBEAT: lambda *_: self._note(HEARTBEAT, HeartbeatResponse()),
            JOIN_GROUP: lambda *_: self._note(JOIN_GROUP, Held(JoinGroupResponse(), self.pending)),  # type: ignore[arg-type]  # all that is used of it
        }

    def _note(self, key: int, response: Any) -> Any:
        self.handled.append(key)
        return response

    def hold(self, rpc: str, **more: Any) -> int:
        return self.faults.set(lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc=rpc, **more))).fault_id

    @property
    def held(self) -> int:
        return sum(fault.held for fault in self.faults.listed())


@pytest.fixture
async def broker() -> Broker:
    return Broker()


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def ask(client: Client, key: int, number: int, message: Any, client_id: str = "test") -> list[int]:
    client.send(joined(request_frame(key, 4, number, client_id, message)))
    await turns()
    return client.correlation_ids()


def join(group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(group, session_timeout_ms=1, rebalance_timeout_ms=1, protocol_type="consumer")


async def test_a_held_request_has_no_effect_until_it_is_released(broker: Broker) -> None:
    number = broker.hold("JoinGroup")
    client = Client(broker.listener)
    assert await ask(client, JOIN_GROUP, 1, join()) == []
    assert (broker.handled, broker.held) == ([], 1)
    [ended] = broker.faults.clear([number])
    assert ended.held == 1, "what it held when it ended"
    await turns()
    assert (broker.handled, client.correlation_ids()) == ([JOIN_GROUP], [1])


async def test_a_held_response_has_its_effect_and_is_sent_when_it_is_released(broker: Broker) -> None:
    broker.hold("JoinGroup", after_effect=True)
    client = Client(broker.listener)
    assert await ask(client, JOIN_GROUP, 1, join()) == []
    assert (broker.handled, broker.held) == ([JOIN_GROUP], 1)
    broker.faults.clear()
    await turns()
    assert (client.correlation_ids(), broker.held) == ([1], 0)


async def test_a_connection_behind_a_held_request_waits_and_keeps_its_order_and_others_go_on(broker: Broker) -> None:
    """SocketServer mutes the channel of a request until its response is sent, and no other one."""
    broker.hold("JoinGroup")
    client, other = Client(broker.listener), Client(broker.listener)
    assert await ask(client, JOIN_GROUP, 1, join()) == []
    assert await ask(client, HEARTBEAT, 2, HeartbeatRequest()) == []
    assert await ask(other, HEARTBEAT, 3, HeartbeatRequest()) == [3]
    broker.faults.clear()
    await turns()
    assert client.correlation_ids() == [1, 2]


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_connection_that_ends_leaves_nothing_held(broker: Broker, after_effect: bool) -> None:
    broker.hold("JoinGroup", after_effect=after_effect)
    client = Client(broker.listener)
    await ask(client, JOIN_GROUP, 1, join())
    assert broker.held == 1
    client.connection.connection_lost(None)
    await turns()
    assert broker.held == 0
    assert broker.pending.released == after_effect, "the response counts no longer among those not yet written"


async def test_a_request_that_outlives_its_connection_takes_effect_at_the_release(broker: Broker) -> None:
    """KafkaRequestHandler takes requests from the RequestChannel, whether their connections are open or not."""
    broker.hold("JoinGroup", outlives_connection=True, times=1)
    client, again = Client(broker.listener), Client(broker.listener)
    await ask(client, JOIN_GROUP, 1, join())
    client.connection.connection_lost(None)
    await turns()
    assert (broker.handled, broker.held) == ([], 1)
    assert await ask(again, JOIN_GROUP, 1, join()) == [1], "the client repeats its request over another connection"
    broker.faults.clear()
    await turns()
    assert (broker.handled, broker.held) == ([JOIN_GROUP, JOIN_GROUP], 0)
    assert client.correlation_ids() == [], "nobody is there to take the response"
    assert broker.pending.released == 2, "no response counts any longer among those not yet written"


async def test_a_request_that_outlives_its_connection_ends_with_the_broker(broker: Broker) -> None:
    broker.hold("JoinGroup", outlives_connection=True)
    client = Client(broker.listener)
    await ask(client, JOIN_GROUP, 1, join())
    client.connection.connection_lost(None)
    await turns()
    broker.faults.close()
    await turns()
    assert (broker.handled, broker.held) == ([], 0)


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_broker_that_stops_closes_the_connections_of_what_is_held(broker: Broker, after_effect: bool) -> None:
    broker.hold("JoinGroup", after_effect=after_effect)
    client = Client(broker.listener)
    await ask(client, JOIN_GROUP, 1, join())
    broker.faults.close()
    await turns()
    assert (client.transport.ended, broker.held) == ("closed", 0)
    later = Client(broker.listener)
    assert await ask(later, JOIN_GROUP, 2, join()) == [2], "a stopping broker holds nothing more"


async def test_only_the_clients_and_groups_that_are_named_wait(broker: Broker) -> None:
    broker.hold("JoinGroup", client_id="me", group="g", caller="clients")
    client = Client(broker.listener)
    assert await ask(client, JOIN_GROUP, 1, join(), client_id="you") == [1]
    assert await ask(client, JOIN_GROUP, 2, join("h"), client_id="me") == [2]
    assert await ask(client, JOIN_GROUP, 3, join(), client_id="me") == []
    assert broker.held == 1
