"""Requests about thousands of partitions leave the event loop to others, over both wires; their responses stay
complete.

The tests count the items made between two turns of the loop, never a duration.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_cluster import LEADER, NOW_MS, TOPIC, Broker, KafkaCluster

from tidegauge.cluster_metadata import PartitionState
from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidegauge.kafka.messages.metadata import MetadataRequest
from tidegauge.metadata_update import Endpoint, MetadataUpdate, ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2, metadata_pb2, offsets_pb2
from tidegauge.with_turns import in_portions
from tidegauge_broker.replica import hosted
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.server.lab.servicer import LabServicer
from tidegauge_broker.server.service import broker_service
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.grpc.broker import BrokerServicer
from tidegauge_broker.server.wire.kafka.handlers import delete_records, metadata
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

COUNT = ITEMS_PER_TURN + 50


class Busiest:
    """Counts calls; ``most`` is how many came in one turn of the event loop, at most."""

    def __init__(self) -> None:
        self.total = 0
        self.most = 0
        self._now = 0

    def counted(self, call: Callable[..., Any], weight: Callable[..., int] = lambda *_: 1) -> Callable[..., Any]:
        def counting(*arguments: Any, **others: Any) -> Any:
            self.total += weight(*arguments)
            self._now += weight(*arguments)
            self.most = max(self.most, self._now)
            return call(*arguments, **others)

        return counting

    async def of(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        while not task.done():
            self._now = 0
            await asyncio.sleep(0)
        return await task


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # a thousand logs would take half a minute
    cluster = KafkaCluster(tmp_path, COUNT, 1)
    await cluster.start()
    yield cluster.brokers[LEADER]
    await cluster.close()


@pytest.fixture
def busiest() -> Busiest:
    return Busiest()


def service_of(broker: Broker) -> BrokerService:
    made = broker.service()
    made._controller = SimpleNamespace(active_controller_id=0)  # type: ignore[assignment]
    return made


async def test_requests_about_thousands_of_partitions_leave_the_loop_its_turns(
    broker: Broker, busiest: Busiest, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, other = service_of(broker), busiest
    monkeypatch.setattr(broker_service, "partition_view", other.counted(broker_service.partition_view))
    monkeypatch.setattr(hosted, "view_of", other.counted(hosted.view_of))
    monkeypatch.setattr(BrokerCore, "list_offset", other.counted(BrokerCore.list_offset))
    monkeypatch.setattr(BrokerCore, "offset_for_leader_epoch", other.counted(BrokerCore.offset_for_leader_epoch))
    monkeypatch.setattr(
        BrokerCore, "delete_records", other.counted(BrokerCore.delete_records, lambda _, wanted, *__: len(wanted))
    )
    context: Any = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:5", auth_context=dict, invocation_metadata=tuple)
    servicer = BrokerServicer(service, lambda: NOW_MS, "PLAINTEXT")
    lab = LabServicer(SimpleNamespace(service=service, now_ms=lambda: NOW_MS), *[None] * 7)  # type: ignore[arg-type]
    numbers = range(COUNT)
    kafka: Any = SimpleNamespace(
        service=service, version=9, caller=Caller("c", "PLAINTEXT"), header=SimpleNamespace(client_id="c", version=9)
    )
    deleted = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(one, 0) for one in numbers])], 9)
    asked: list[tuple[Coroutine[Any, Any, Any], Callable[[Any], list[int]]]] = [
        (metadata.handle(MetadataRequest(None), kafka), lambda r: [p.partition_index for p in r.topics[0].partitions]),  # type: ignore[list-item]
        (
            servicer.Metadata(metadata_pb2.MetadataRequest(all_topics=True), context),
            lambda r: [p.partition for p in r.topics[0].partitions],
        ),
        (
            servicer.DescribeReplicas(metadata_pb2.DescribeReplicasRequest(), context),
            lambda r: [p.partition for p in r.replicas],
        ),
        (
            lab.ObserveReplicas(lab_pb2.ObserveReplicasRequest(), context),
            lambda r: [p.partition for p in r.replicas],
        ),
        (
            servicer.ListOffsets(
                offsets_pb2.ListOffsetsRequest(
                    partitions=[
                        offsets_pb2.ListOffsetsPartition(topic=TOPIC, partition=one, timestamp_ms=-1) for one in numbers
                    ]
                ),
                context,
            ),
            lambda r: [p.partition for p in r.partitions],
        ),
        (
            servicer.OffsetsForLeaderEpoch(
                offsets_pb2.OffsetsForLeaderEpochRequest(
                    partitions=[
                        offsets_pb2.OffsetForLeaderEpochPartition(topic=TOPIC, partition=one, leader_epoch=1)
                        for one in numbers
                    ]
                ),
                context,
            ),
            lambda r: [p.partition for p in r.partitions],
        ),
        (
            servicer.DeleteRecords(
                offsets_pb2.DeleteRecordsRequest(
                    timeout_ms=9,
                    partitions=[
                        offsets_pb2.DeleteRecordsPartition(topic=TOPIC, partition=one, before_offset=0)
                        for one in numbers
                    ],
                ),
                context,
            ),
            lambda r: [p.partition for p in r.partitions],
        ),
        (delete_records.handle(deleted, kafka), lambda r: [p.partition_index for p in r.topics[0].partitions]),
    ]
    for work, named in asked:
        busiest.total = busiest.most = 0
        response = await busiest.of(work)
        assert named(response) == list(numbers)
        assert busiest.total >= COUNT, work
        assert busiest.most <= ITEMS_PER_TURN, work


async def test_metadata_of_a_large_cluster_is_that_of_one_moment(tmp_path: Path) -> None:
    """A client must not see some of a topic's partitions: it would choose partitions by their count."""
    cluster = KafkaCluster(tmp_path, 1, 1)
    await cluster.start()
    broker = cluster.brokers[LEADER]
    states = [PartitionState(TopicPartition("t", one), "", 1, LEADER, 1, (0,), 1, (0,)) for one in range(COUNT)]
    endpoints = [Endpoint(0, "127.0.0.1", 9092)]
    broker.metadata.update(MetadataUpdate(LEADER, 1, endpoints, [ReportedPartition(one) for one in states]))
    kafka: Any = SimpleNamespace(service=service_of(broker), version=9, caller=Caller("c", "PLAINTEXT"))
    task = asyncio.ensure_future(metadata.handle(MetadataRequest(None), kafka))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    gone = [ReportedPartition(one, deleted=True) for one in states]
    broker.metadata.update(MetadataUpdate(LEADER, 1, endpoints, gone))
    assert not task.done()
    found = {topic.name: topic for topic in (await task).topics}
    assert [one.partition_index for one in found["t"].partitions] == list(range(COUNT))
    assert {one.error_code for one in found["t"].partitions} == {ErrorCode.NONE}
    await cluster.close()


async def test_portions_begin_in_turns_and_are_awaited_together() -> None:
    begun: list[int] = []
    gate = asyncio.Event()

    async def handle(some: Any) -> list[int]:
        begun.append(len(some))
        await gate.wait()
        return [one * 2 for one in some]

    task = asyncio.ensure_future(in_portions(range(7), handle, 3))
    for _ in range(10):
        await asyncio.sleep(0)
    assert begun == [3, 3, 1]
    gate.set()
    assert await task == [0, 2, 4, 6, 8, 10, 12]


async def test_portions_end_with_their_caller() -> None:
    ended: list[int] = []

    async def handle(some: Any) -> list[int]:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(len(some))
        return []

    task = asyncio.ensure_future(in_portions(range(5), handle, 2))
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert ended == [2, 2, 1]
