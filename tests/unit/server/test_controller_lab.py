"""The lab in a controller: which requests its faults meet, whom it takes for their sender, and the hold of fetches."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import FETCH
from tidegauge.kafka.kraft.apis import KRAFT_APIS
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.controller_lab import ControllerLab
from tidegauge_broker.server.lab.controller_servicer import ControllerLabServicer
from tidegauge_broker.server.lab.fault_table import FaultTable, Place
from tidegauge_broker.server.lab.held_fetches import HeldFetches
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.lab_in_use import lab_of
from tidegauge_broker.server.quorum.node_lab import NodeLab

VOTE = next(key for key, api in KRAFT_APIS.items() if api.name == "Vote")
HEARTBEAT = next(key for key, api in KRAFT_APIS.items() if api.name == "BrokerHeartbeat")


class Listener:
    """A controller's handlers behind its lab; each handler responds at once with its API's key."""

    def __init__(self) -> None:
        self.lab = ControllerLab(3000, "127.0.0.1:1")
        self.responses: list[Any] = []
        self.refusals: list[tuple[ErrorCode, str]] = []
        served = {key: Served(key, lambda call: call.respond(call.key)) for key in (FETCH, VOTE, HEARTBEAT)}
        self.handlers = self.lab.gated(served)

    def call(self, key: int, client_id: str, message: Any = None) -> None:
        def refuse(error: ErrorCode, text: str) -> None:
            self.refusals.append((error, text))

        call = Call(key, 0, message, self.responses.append, refuse, client_id=client_id)
        self.handlers[key].handle(call)

    def put(self, fault: lab_pb2.LabFault) -> int:
        return self.lab._faults.set(fault).fault_id

    async def settled(self) -> list[Any]:
        """The responses when every task has come as far as it can."""
        for _ in range(5):
            await asyncio.sleep(0)
        return self.responses


def partitioned(*ids: int) -> lab_pb2.LabFault:
    plane = lab_pb2.LAB_PLANE_BROKERS
    return lab_pb2.LabFault(network=lab_pb2.NetworkFault(plane=plane, broker_ids=ids, partitioned=True))


def test_without_a_fault_a_request_is_handled_at_once() -> None:
    listener = Listener()
    listener.call(VOTE, "raft-client-3001")
    assert listener.responses == [VOTE]


async def test_a_partition_takes_the_requests_of_its_nodes_and_no_others() -> None:
    """A node is known by the client id of its Raft requests, a broker by the id in its own."""
    listener = Listener()
    listener.put(partitioned(3001, 0))
    listener.call(VOTE, "raft-client-3001")
    listener.call(HEARTBEAT, "broker", SimpleNamespace(broker_id=0))
    assert await listener.settled() == [], "no response: the senders give them up at their own timeouts"
    listener.call(VOTE, "raft-client-3002")
    listener.call(HEARTBEAT, "broker", SimpleNamespace(broker_id=1))
    listener.call(HEARTBEAT, "anyone")
    assert await listener.settled() == [VOTE, HEARTBEAT, HEARTBEAT]


async def test_a_held_vote_goes_on_when_the_hold_ends_and_others_pass() -> None:
    listener = Listener()
    fault_id = listener.put(lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc="Vote")))
    listener.call(VOTE, "raft-client-3001")
    listener.call(FETCH, "raft-client-3001")
    assert await listener.settled() == [FETCH]
    listener.lab._faults.clear([fault_id])
    assert await listener.settled() == [FETCH, VOTE]


async def test_a_held_response_is_of_a_request_that_took_effect() -> None:
    listener = Listener()
    fault_id = listener.put(lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc="ReplicaFetch", after_effect=True)))
    listener.call(FETCH, "raft-client-3001")
    assert await listener.settled() == []
    listener.lab._faults.clear([fault_id])
    assert await listener.settled() == [FETCH]


async def test_an_injected_error_is_the_response() -> None:
    listener = Listener()
    error = lab_pb2.ErrorFault(rpc="Vote", error=int(ErrorCode.FENCED_LEADER_EPOCH))  # type: ignore[arg-type]
    listener.put(lab_pb2.LabFault(error=error))
    listener.call(VOTE, "raft-client-3001")
    await listener.settled()
    assert listener.refusals == [(ErrorCode.FENCED_LEADER_EPOCH, "injected by the lab")]


def vote(*, pre_vote: bool) -> Any:
    partition = SimpleNamespace(pre_vote=pre_vote)
    return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])


async def test_a_vote_that_only_asks_has_a_name_of_its_own() -> None:
    """KIP-996: a story can hold the questions, and lose the votes that count."""
    listener = Listener()
    fault_id = listener.put(lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc="PreVote")))
    listener.call(VOTE, "raft-client-3001", vote(pre_vote=True))
    listener.call(VOTE, "raft-client-3002", vote(pre_vote=False))
    assert await listener.settled() == [VOTE]
    listener.lab._faults.clear([fault_id])
    assert await listener.settled() == [VOTE, VOTE]


class Refused(Exception):
    """The end of a call that was refused."""


class Context:
    """The context of a call of the Lab service."""

    async def abort(self, status: grpc.StatusCode, text: str) -> None:
        """Note why, as the caller is notified."""
        assert status is grpc.StatusCode.FAILED_PRECONDITION
        raise Refused(text)


@pytest.mark.parametrize(("method", "why"), [("ExpireSession", "membership"), ("SyncLog", "flushes __cluster")])
async def test_what_brokers_alone_have_is_refused_with_the_reason(method: str, why: str) -> None:
    """A method that is missing would look like a node without a Lab service, which this one is not."""
    faults = FaultTable(3000, DiskFaults(), place=Place.CONTROLLER)
    servicer = ControllerLabServicer(  # type: ignore[abstract]  # what it lacks is UNIMPLEMENTED
        3000, faults, HeldFetches(), lambda _: None, lambda _: None
    )
    with pytest.raises(Refused, match=f"controller 3000 has no .*{why}.*; name a broker"):
        await getattr(servicer, method)(None, Context())


def test_a_controller_without_lab_listener_has_no_lab() -> None:
    """Nothing of gRPC is loaded or listens, and no gate wraps a request."""
    plain = lab_of(3000, "")
    assert type(plain) is NodeLab
    served = {VOTE: Served(VOTE, lambda _: None)}
    assert plain.gated(served) is served
