"""The shell of the transaction coordinator, and what the service does around it: markers, leaders, producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import ControlHeader, Endpoint, UpdateMetadataRequest
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.settings import parse_broker_settings
from tidegauge.transaction_marker import Outcome, TransactionMarker, read_marker
from tidegauge.transactions import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
)
from tidegauge_broker.coordinator.effects import FindLeaders, MarkersOfTransaction, WriteMarkers
from tidegauge_broker.coordinator.events import NO_BROKER, LeadersFound
from tidegauge_broker.replica.messages import ProduceRequest, ProduceResult
from tidegauge_broker.server.coordinators.transaction_runner import TransactionRunner, TransactionServices
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.service.transaction_service import TransactionService

STATE = TopicPartition("__transaction_state", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
ORDERS, GONE, LEADERLESS = (TopicPartition(name, 0) for name in ("orders", "gone", "leaderless"))
NOW_MS = 1_700_000_000_000
NONE = ErrorCode.NONE


class Log:
    """The empty log of a new topic."""

    log_start_offset = log_end_offset = 0


class Replicas:
    """Hosts some partitions; appends are committed at once, or wait for the test."""

    def __init__(self) -> None:
        self.logs = {STATE: Log()}
        self.requests: list[ProduceRequest] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.waits: asyncio.Event | None = None
        self.core = SimpleNamespace(partition=lambda at: at if at in {STATE, OFFSETS, ORDERS} else None)

    def is_committed(self, at: TopicPartition, end: int) -> bool:
        return at == STATE and end >= 0

    def leads(self, at: TopicPartition) -> bool:
        return at == STATE

    def produce(self, request: ProduceRequest) -> asyncio.Future[Sequence[ProduceResult]]:
        self.requests.append(request)

        async def produced() -> Sequence[ProduceResult]:
            if self.waits is not None:
                await self.waits.wait()
            return [
                ProduceResult(item.topic_partition, self.errors.get(item.topic_partition, NONE), "", 4)
                for item in request.partitions
            ]

        return asyncio.ensure_future(produced())


class Groups:
    """The group coordinator's shell: notes completions, and may wait for the test."""

    partitions = 1

    def __init__(self) -> None:
        self.completed: list[tuple[int, Mapping[int, int], Outcome]] = []
        self.waits = asyncio.Event()
        self.waits.set()

    def transaction_completed(self, producer_id: int, marker_offsets: Mapping[int, int], outcome: Outcome) -> Any:
        self.completed.append((producer_id, marker_offsets, outcome))
        return asyncio.ensure_future(self.waits.wait())


def metadata() -> MetadataCache:
    cache = MetadataCache()
    states = [
        ReportedPartition(PartitionState(at, "id", 1, leader, 0, (0,), 0, (0,)))
        for at, leader in ((ORDERS, 0), (LEADERLESS, 9), (STATE, 0), (OFFSETS, 0))
    ]
    cache.update(UpdateMetadataRequest(ControlHeader(0, 1, 1), states, [Endpoint(0, "localhost", 1, None)]).update)
    return cache


class World:
    def __init__(self) -> None:
        values, _ = parse_broker_settings({"broker.id": "0", "zookeeper.connect": "z:1"})
        self.replicas, self.groups, self.metadata = Replicas(), Groups(), metadata()
        self.producer_id: int | None = 7
        self.sent: list[WriteMarkers] = []
        self.deleted: set[TopicPartition] = set()
        around = TransactionServices(lambda: self.producer_id, self.metadata, self._deleted, self._send)
        events = EventLogWriter(None, "broker-0", lambda: NOW_MS, asyncio.get_running_loop().call_later)
        replicas: Any = self.replicas
        groups: Any = self.groups
        self.runner = TransactionRunner(values, replicas, around, events, lambda: NOW_MS, self._halted)
        self.service = TransactionService(self.runner, groups, replicas, self.metadata, values, lambda: NOW_MS)
        self.runner.topic_seen(1)

    async def _deleted(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return [at for at in partitions if at in self.deleted]

    async def _send(self, effect: WriteMarkers) -> Any:
        self.sent.append(effect)
        return await self.service.write_markers(effect.markers)

    @staticmethod
    def _halted(problem: Exception) -> None:
        raise AssertionError("the broker would halt") from problem

    async def elected(self) -> None:
        self.runner.leadership_changed(STATE, leads=True, leader_epoch=3)
        await turns()


@pytest.fixture
async def world() -> Any:
    made = World()
    yield made
    await made.runner.close()
    await made.service.close()


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def initialised(world: World) -> InitProducerIdResult:
    result = await world.service.ask(InitProducerId("tx", 60_000))
    assert isinstance(result, InitProducerIdResult)
    return result


async def test_a_transaction_goes_from_its_id_to_its_markers(world: World) -> None:
    """TransactionCoordinator: each response when its record is committed; markers after the decision."""
    await world.elected()
    begun = await initialised(world)
    assert (begun.error, begun.producer_id, begun.producer_epoch) == (NONE, 7, 0)
    added = await world.service.add_partitions(AddPartitionsToTxn("tx", 7, 0, (ORDERS,)), may_be_internal=False)
    assert added == AddPartitionsToTxnResult({ORDERS: NONE})
    assert await world.service.ask(EndTxn("tx", 7, 0, Outcome.COMMIT)) == EndTxnResult()
    await turns()
    [sent] = world.sent
    assert sent.broker_id == 0
    assert sent.markers == (MarkersOfTransaction(TransactionMarker(7, 0, Outcome.COMMIT, 3), (ORDERS,)),)
    written = [item.topic_partition for one in world.replicas.requests for item in one.partitions]
    assert written == [STATE, STATE, STATE, ORDERS, STATE]
    assert all(one.from_coordinator and one.acks == -1 for one in world.replicas.requests)


async def test_without_a_block_of_ids_the_producer_tries_again(world: World) -> None:
    """ProducerIdManager.generateProducerId does not wait."""
    world.producer_id = None
    await world.elected()
    assert (await initialised(world)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_another_broker_is_the_coordinator(world: World) -> None:
    assert (await initialised(world)).error is ErrorCode.NOT_COORDINATOR


async def test_leaders_come_from_the_metadata_and_what_is_deleted_from_zookeeper(world: World) -> None:
    """TransactionMarkerChannelManager drops the marker of each partition that the cache lacks.

    The cache of a broker that has just started, or that a new controller has notified of the brokers alone, lacks what
    exists: a transaction was acknowledged whose offsets never had their marker.
    """
    found: list[Any] = []
    world.runner.coordinator.handle = lambda event, _: found.append(event) or []  # type: ignore[method-assign]
    effect = FindLeaders(1, (ORDERS, GONE, LEADERLESS))
    world.runner._carry_out([effect])
    await turns()
    assert found == [LeadersFound(1, {ORDERS: 0, LEADERLESS: NO_BROKER, GONE: NO_BROKER})]
    world.deleted = {GONE, ORDERS}
    world.runner._carry_out([effect])
    await turns()
    assert found[1] == LeadersFound(1, {ORDERS: 0, LEADERLESS: NO_BROKER}), "what the metadata knows is not asked for"
    world.runner._carry_out([FindLeaders(2, (ORDERS,))])
    assert found[2] == LeadersFound(2, {ORDERS: 0})


async def test_no_marker_waits_for_a_topic_whose_deletion_has_begun(world: World) -> None:
    """ZooKeeper has its assignment while a replica on a dead broker holds up the deletion; no consumer can read it.

    Its producer would get CONCURRENT_TRANSACTIONS for as long; Kafka's coordinator takes its cache's word.
    """
    found: list[Any] = []
    world.runner.coordinator.handle = lambda event, _: found.append(event) or []  # type: ignore[method-assign]
    state = world.metadata.partitions("orders")[0].state
    header = ControlHeader(0, 1, 1)
    live = list(world.metadata.endpoints())
    world.metadata.update(UpdateMetadataRequest(header, [ReportedPartition(state, deleted=True)], live).update)
    world.runner._carry_out([FindLeaders(1, (ORDERS, LEADERLESS))])
    await turns()
    assert found == [LeadersFound(1, {LEADERLESS: NO_BROKER})]


async def test_a_partition_waits_for_its_leader_where_zookeeper_cannot_be_asked(world: World) -> None:
    found: list[Any] = []
    world.runner.coordinator.handle = lambda event, _: found.append(event) or []  # type: ignore[method-assign]
    world.deleted = SimpleNamespace(__contains__=None)  # type: ignore[assignment] - asking fails
    world.runner._carry_out([FindLeaders(1, (GONE,))])
    await turns()
    assert found == [LeadersFound(1, {GONE: NO_BROKER})]


async def test_partitions_that_clients_may_not_add_keep_the_others_out(world: World) -> None:
    """KafkaApis.handleAddPartitionsToTxnRequest; a broker that verifies may name internal topics."""
    wanted = AddPartitionsToTxn("tx", 7, 0, (ORDERS, GONE, OFFSETS))
    found = await world.service.add_partitions(wanted, may_be_internal=False)
    assert found.partitions == {
        ORDERS: ErrorCode.OPERATION_NOT_ATTEMPTED,
        GONE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        OFFSETS: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    internal = AddPartitionsToTxn("tx", 7, 0, (OFFSETS,), verify_only=True)
    assert (await world.service.add_partitions(internal, may_be_internal=True)).partitions == {
        OFFSETS: ErrorCode.NOT_COORDINATOR
    }


async def test_markers_are_control_batches_and_report_each_partition(world: World) -> None:
    """KafkaApis.handleWriteTxnMarkersRequest: UNKNOWN_TOPIC_OR_PARTITION if there is no log."""
    world.replicas.errors[ORDERS] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    marker = TransactionMarker(7, 3, Outcome.ABORT, 9)
    found = await world.service.write_markers([MarkersOfTransaction(marker, (ORDERS, OFFSETS, GONE))])
    assert found == {
        7: {ORDERS: ErrorCode.NOT_LEADER_OR_FOLLOWER, OFFSETS: NONE, GONE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    }
    [request] = world.replicas.requests
    assert (request.acks, request.from_coordinator, request.timeout_ms) == (-1, True, 30_000)
    batch = request.partitions[0].records
    assert read_marker(batch, read_header(batch)) == marker


@pytest.mark.parametrize("producer", [(-1, 0), (7, -1)])
async def test_a_marker_without_a_producer_fails_the_request_and_those_before_it_are_written(
    world: World, producer: tuple[int, int]
) -> None:
    """MemoryRecordsBuilder.validateProducerState, marker by marker; such a marker would stay in the log for ever."""
    first, last = (TransactionMarker(8, epoch, Outcome.COMMIT, 9) for epoch in (0, 1))
    odd = TransactionMarker(*producer, Outcome.ABORT, 9)
    with pytest.raises(TidegaugeError, match="can't be -1") as refused:
        await world.service.write_markers([MarkersOfTransaction(one, (ORDERS,)) for one in (first, odd, last)])
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    [request] = world.replicas.requests
    batch = request.partitions[0].records
    assert read_marker(batch, read_header(batch)) == first
    elsewhere = await world.service.write_markers([MarkersOfTransaction(odd, (GONE,))])
    assert elsewhere == {producer[0]: {GONE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}, "it is not about a log here"


async def test_kafka_17507_offsets_are_completed_before_the_markers_response(world: World) -> None:
    """KAFKA-17507: else the offsets of the producer's next transaction might count as this one's."""
    world.groups.waits.clear()
    marker = TransactionMarker(7, 3, Outcome.COMMIT, 9)
    writing = asyncio.ensure_future(world.service.write_markers([MarkersOfTransaction(marker, (OFFSETS, ORDERS))]))
    await turns()
    assert world.groups.completed == [(7, {0: 4}, Outcome.COMMIT)]
    assert not writing.done()
    world.groups.waits.set()
    assert await writing == {7: {OFFSETS: NONE, ORDERS: NONE}}


async def test_a_marker_that_failed_completes_no_offsets(world: World) -> None:
    world.replicas.errors[OFFSETS] = ErrorCode.REQUEST_TIMED_OUT
    marker = TransactionMarker(7, 3, Outcome.COMMIT, 9)
    await world.service.write_markers([MarkersOfTransaction(marker, (OFFSETS,))])
    assert world.groups.completed == []


async def test_offsets_are_completed_also_where_the_coordinator_has_gone(world: World) -> None:
    """The marker is in the log: its effect does not depend on the caller still waiting."""
    world.replicas.waits = asyncio.Event()
    marker = TransactionMarker(7, 3, Outcome.COMMIT, 9)
    writing = asyncio.ensure_future(world.service.write_markers([MarkersOfTransaction(marker, (OFFSETS,))]))
    await turns()
    writing.cancel()
    await turns()
    world.replicas.waits.set()
    await turns()
    assert world.groups.completed == [(7, {0: 4}, Outcome.COMMIT)]
