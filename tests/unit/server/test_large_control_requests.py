"""Control requests of thousands of partitions leave the event loop to others, and end as whole ones would.

Counted are the partitions of each step and the turns between, never a duration.
"""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import TOPIC, TOPIC_ID, Broker

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    ControlHeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.metadata_update import Endpoint, ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.settings import topic_values
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.server.replication import replica_changes
from tidegauge_controller import wire

PARTITIONS_PER_STEP = 5
"""In the place of the real one: logs are files, which take long to make."""
COUNT = 6 * PARTITIONS_PER_STEP + 1
HEADER = ControlHeader(0, 1, 1)
ENDPOINTS = [Endpoint(0, "127.0.0.1", 9092)]


def state(number: int, leader_epoch: int = 1) -> PartitionState:
    return PartitionState(TopicPartition(TOPIC, number), TOPIC_ID, 1, 0, leader_epoch, (0,), 1, (0,))


def leader_and_isr(count: int = COUNT, header: ControlHeader = HEADER) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(header, [LeaderAndIsrPartition(state(one), True) for one in range(count)], ENDPOINTS)


def stop_replica(count: int = COUNT, *, delete: bool = True) -> StopReplicaRequest:
    return StopReplicaRequest(
        HEADER, [StopReplicaPartition(TopicPartition(TOPIC, one), None, delete) for one in range(count)]
    )


class Steps:
    """Notes how many partitions each decision of the core is about, and the turn of the loop in which it came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.turns: list[int] = []
        self._turn = 0
        for name in ("take_over", "stop"):
            monkeypatch.setattr(BrokerCore, name, self._noting(getattr(BrokerCore, name)))

    def _noting(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        def noting(core: BrokerCore, items: Any, *arguments: Any, **others: Any) -> Any:
            self.sizes.append(len(items))
            self.turns.append(self._turn)
            return decide(core, items, *arguments, **others)

        return noting

    async def until(self, task: asyncio.Task[PartitionsResponse]) -> PartitionsResponse:
        while not task.done():
            self._turn += 1
            await asyncio.sleep(0)
        return await task

    def check(self) -> None:
        assert sum(self.sizes) == COUNT
        assert max(self.sizes) <= PARTITIONS_PER_STEP
        assert len(set(self.turns)) == len(self.turns), "a turn for each"


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr(replica_changes, "PARTITIONS_PER_STEP", PARTITIONS_PER_STEP)

    def none(_address: str, _client_id: str) -> Any:
        raise AssertionError("nothing is replicated")

    made = Broker(0, tmp_path, none)
    made.metadata.update(UpdateMetadataRequest(HEADER, [], ENDPOINTS).update)
    yield made
    await made.close()


async def become(broker: Broker, request: LeaderAndIsrRequest) -> PartitionsResponse:
    async def values(_topic: str) -> Any:
        return topic_values({}, broker.settings)

    return await broker.replicas.control.leader_and_isr(request, values)


async def test_thousands_of_partitions_get_their_roles_in_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    response = await steps.until(asyncio.ensure_future(become(broker, leader_and_isr())))
    assert response == PartitionsResponse(
        ErrorCode.NONE, {TopicPartition(TOPIC, one): ErrorCode.NONE for one in range(COUNT)}
    )
    steps.check()
    assert all(broker.replicas.leads(TopicPartition(TOPIC, one)) for one in range(COUNT))


async def test_leader_epochs_of_all_steps_are_on_the_disk_before_the_response(broker: Broker) -> None:
    await become(broker, leader_and_isr())
    for number in (0, COUNT // 2, COUNT - 1):
        text = (broker.directory / f"{TOPIC}-{number}" / "leader-epoch-checkpoint").read_text()
        assert text.split() == ["0", "1", "1", "0"], "version, count, epoch and offset"


async def test_thousands_of_replicas_are_stopped_and_deleted_in_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await become(broker, leader_and_isr())
    steps = Steps(monkeypatch)
    response = await steps.until(asyncio.ensure_future(broker.replicas.control.stop_replica(stop_replica())))
    assert set(response.partitions.values()) == {ErrorCode.NONE}
    steps.check()
    assert not broker.logs.logs
    left = [path.name for path in broker.directory.glob(f"{TOPIC}-*")]
    assert len(left) == COUNT
    assert all(name.endswith("-delete") for name in left)


async def test_logs_are_renamed_in_the_pool_and_the_response_waits_for_it(broker: Broker) -> None:
    await become(broker, leader_and_isr(3))
    broker.pool_is_free.clear()
    task = asyncio.ensure_future(broker.replicas.control.stop_replica(stop_replica(3)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not broker.logs.logs
    assert not task.done()
    broker.pool_is_free.set()
    assert set((await task).partitions.values()) == {ErrorCode.NONE}


async def test_a_replica_that_comes_again_waits_for_the_deletion(broker: Broker) -> None:
    """A LeaderAndIsr behind the StopReplica makes the log again: its directory must have been renamed before."""
    await become(broker, leader_and_isr(3))
    broker.pool_is_free.clear()
    stopping = asyncio.ensure_future(broker.replicas.control.stop_replica(stop_replica(3)))
    starting = asyncio.ensure_future(become(broker, leader_and_isr(3)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not broker.logs.logs
    broker.pool_is_free.set()
    await stopping
    assert set((await starting).partitions.values()) == {ErrorCode.NONE}
    assert len(broker.logs.logs) == 3


async def test_a_disk_that_refuses_a_deletion_is_in_the_response(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await become(broker, leader_and_isr(3))
    [log_directory] = {log.log_directory for log in broker.logs.logs.values()}

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(log_directory.disk), "rename", refuse)
    response = await broker.replicas.control.stop_replica(stop_replica(3))
    assert set(response.partitions.values()) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert log_directory.offline


async def test_a_request_of_a_controller_that_is_replaced_meanwhile_ends_with_its_error(broker: Broker) -> None:
    """The successor sends every state again; states taken over before are judged by their leader epochs."""
    task = asyncio.ensure_future(become(broker, leader_and_isr()))
    while not broker.logs.logs:  # noqa: ASYNC110 - nothing else would tell
        await asyncio.sleep(0)
    assert broker.replicas.control.fence("UpdateMetadata", ControlHeader(7, 2, 1)) is ErrorCode.NONE
    assert (await task).error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert 0 < len(broker.logs.logs) < COUNT


async def test_a_fenced_request_without_partitions_has_its_error(broker: Broker) -> None:
    broker.replicas.control.fence("UpdateMetadata", ControlHeader(7, 2, 1))
    assert (await become(broker, leader_and_isr(0))).error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert (await broker.replicas.control.stop_replica(stop_replica(0))).error is ErrorCode.STALE_CONTROLLER_EPOCH


# On the wire, and in memory


async def turns_of(work: Any) -> int:
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_messages_of_thousands_of_partitions_are_converted_in_turns() -> None:
    states = [state(one) for one in range(10 * wire.PARTITIONS_PER_TURN)]
    metadata = UpdateMetadataRequest(HEADER, [ReportedPartition(one) for one in states], ENDPOINTS)
    response = PartitionsResponse(ErrorCode.NONE, {one.topic_partition: ErrorCode.NONE for one in states})
    become, stop = leader_and_isr(len(states)), stop_replica(len(states))
    for work in (
        wire.to_leader_and_isr(become),
        wire.from_leader_and_isr(await wire.to_leader_and_isr(become)),
        wire.to_update_metadata(metadata),
        wire.from_update_metadata(await wire.to_update_metadata(metadata)),
        wire.to_stop_replica(stop),
        wire.from_stop_replica(await wire.to_stop_replica(stop)),
        wire.to_leader_and_isr_response(response),
        wire.from_partitions_response(await wire.to_leader_and_isr_response(response)),
    ):
        assert await turns_of(work) >= 10


async def test_a_deleted_partition_leaves_nothing_to_the_garbage_collection(broker: Broker) -> None:
    """It may be frozen: a cycle of references would keep it for good."""

    def partitions() -> int:
        return sum(isinstance(one, Partition) for one in gc.get_objects())

    before = partitions()
    gc.disable()
    try:
        await become(broker, leader_and_isr(20))
        assert partitions() == before + 20
        await broker.replicas.control.stop_replica(stop_replica(20))
        assert partitions() == before
    finally:
        gc.enable()
