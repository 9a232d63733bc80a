"""A broker's requests to itself about transactions pass the gate, as in Kafka they pass a socket."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge.transactions import AddPartitionsToTxn
from tidegauge.v1 import common_pb2, transaction_markers_pb2
from tidegauge_broker.coordinator.effects import MarkersOfTransaction, WriteMarkers
from tidegauge_broker.server.coordinators.grpc_transactions import GrpcTransactions
from tidegauge_broker.server.coordinators.transaction_peers import TransactionPeers
from tidegauge_broker.server.service.gate import CallRefused, GatedRequest, InjectedError
from tidegauge_broker.server.wire.grpc.replication import from_marker

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
MARKERS = WriteMarkers(1, 1, (MarkersOfTransaction(TransactionMarker(7, 2, Outcome.COMMIT, 0), (A, B)),))
WANTED = AddPartitionsToTxn("tx", 7, 2, (A,), verify_only=True)


class FakeGate:
    """Injects, holds or refuses; notes the requests."""

    def __init__(self, injected: InjectedError | None = None) -> None:
        self.injected = injected
        self.is_open = False
        self.asked: list[GatedRequest] = []
        self.released = asyncio.Event()
        self.refuses = False

    async def admit(self, request: GatedRequest) -> InjectedError | None:
        self.asked.append(request)
        if self.refuses:
            raise CallRefused("the broker stops")
        return self.injected

    def hold_of(self, _: GatedRequest) -> Any:
        return SimpleNamespace(wait=self.released.wait)


class Service:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.wrote = asyncio.Event()

    async def write_markers(self, _: Any) -> dict[int, dict[TopicPartition, ErrorCode]]:
        self.done.append("markers")
        self.wrote.set()
        return {7: {A: ErrorCode.NONE, B: ErrorCode.NONE}}

    async def add_partitions(self, *_: Any, may_be_internal: bool) -> Any:
        assert may_be_internal
        self.done.append("verified")
        return SimpleNamespace(partitions={A: ErrorCode.NONE})


def peers_with(gate: FakeGate | None, stub: Any = None) -> tuple[TransactionPeers, Service]:
    channels = SimpleNamespace(replication=lambda _: stub)
    settings = SimpleNamespace(integer=lambda _: 1_000)
    others = GrpcTransactions(lambda _: "h:1", cast("Any", channels), cast("Any", settings), LogicalClock(lambda: 0))
    found = TransactionPeers(1, others, cast("Any", gate))
    service = Service()
    found.service = cast("Any", service)
    return found, service


async def test_markers_to_itself_are_held_after_their_effect_until_the_hold_is_released() -> None:
    gate = FakeGate()
    peers, service = peers_with(gate)
    sending = asyncio.ensure_future(peers.send_markers(MARKERS))
    await service.wrote.wait()
    assert not sending.done(), "the markers are written, the response waits"
    gate.released.set()
    assert await sending == {7: {A: ErrorCode.NONE, B: ErrorCode.NONE}}
    [asked] = gate.asked
    assert (asked.api, list(asked.partitions), asked.caller.broker_id) == ("WriteTxnMarkers", [A, B], 1)


@pytest.mark.parametrize(("after_effect", "done"), [(False, []), (True, ["markers"])])
async def test_an_error_for_markers_to_itself_stands_in_each_partition(after_effect: bool, done: list[str]) -> None:
    gate = FakeGate(InjectedError(int(ErrorCode.NOT_LEADER_OR_FOLLOWER), after_effect))
    gate.released.set()
    peers, service = peers_with(gate)
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await peers.send_markers(MARKERS) == {7: {A: error, B: error}}
    assert service.done == done


async def test_a_verification_by_itself_passes_the_gate_with_its_transactional_id() -> None:
    gate = FakeGate(InjectedError(int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    gate.released.set()
    peers, service = peers_with(gate)
    assert await peers.send_verifications(1, [WANTED]) == [{A: ErrorCode.CONCURRENT_TRANSACTIONS}]
    assert (gate.asked[0].api, gate.asked[0].transactional_id) == ("AddPartitionsToTxn", "tx")
    assert service.done == []


async def test_what_a_gate_refuses_has_no_response_and_is_repeated() -> None:
    gate = FakeGate()
    gate.refuses = True
    peers, _ = peers_with(gate)
    assert await peers.send_markers(MARKERS) is None
    assert await peers.send_verifications(1, [WANTED]) == [{A: ErrorCode.NETWORK_EXCEPTION}]


async def test_without_faults_nothing_is_asked() -> None:
    gate = FakeGate()
    gate.is_open = True
    peers, service = peers_with(gate)
    await peers.send_markers(MARKERS)
    await peers.send_verifications(1, [WANTED])
    assert (gate.asked, service.done) == ([], ["markers", "verified"])


async def test_an_error_of_the_whole_is_that_of_each_partition_of_a_verification() -> None:
    """AddPartitionsToTxnManager: a top-level error counts for every transaction of the request."""

    class Stub:
        async def VerifyPartitions(self, *_: Any, **__: Any) -> transaction_markers_pb2.VerifyPartitionsResponse:  # noqa: N802
            error = common_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS
            return transaction_markers_pb2.VerifyPartitionsResponse(status=common_pb2.Status(error=error))

    peers, _ = peers_with(None, Stub())
    assert await peers.send_verifications(2, [WANTED]) == [{A: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}]


async def test_grpc_carries_the_version_of_a_marker_and_partitions_that_are_to_be_added() -> None:
    """The additional fields of WriteTxnMarkers v2 and AddPartitionsToTxn v4 in Kafka's protocol (KIP-890, part 2)."""
    sent: list[Any] = []

    class Stub:
        async def WriteMarkers(self, request: Any, **_: Any) -> Any:  # noqa: N802
            sent.append(request)
            return transaction_markers_pb2.WriteMarkersResponse()

        async def VerifyPartitions(self, request: Any, **_: Any) -> Any:  # noqa: N802
            sent.append(request)
            return transaction_markers_pb2.VerifyPartitionsResponse()

    peers, _ = peers_with(None, Stub())
    markers = [MarkersOfTransaction(TransactionMarker(7, 2, Outcome.COMMIT, 0, version), (A,)) for version in (0, 2)]
    await peers.send_markers(WriteMarkers(1, 2, tuple(markers)))
    added = AddPartitionsToTxn("tx", 7, 2, (A,), is_implicit=True)
    await peers.send_verifications(2, [WANTED, added])
    assert [from_marker(one) for one in sent[0].markers] == markers
    assert [one.adds for one in sent[1:]] == [False, True]
