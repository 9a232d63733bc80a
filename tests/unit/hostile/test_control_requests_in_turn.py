"""Control requests are taken one after the other, each to its end (ReplicaManager.replicaStateChangeLock)."""

from __future__ import annotations

import asyncio
from typing import Any

from hostile_broker import TOPIC_ID, HostileBroker
from tests.waiting import until_async

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    ControlHeader,
    Endpoint,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log.checkpoints import LEADER_EPOCH_CHECKPOINT

HEADER = ControlHeader(0, 1, 1)
AT = TopicPartition("late", 0)


def lead(leader_epoch: int) -> LeaderAndIsrRequest:
    state = PartitionState(
        topic_partition=AT,
        topic_id=TOPIC_ID,
        controller_epoch=1,
        leader=0,
        leader_epoch=leader_epoch,
        isr=(0,),
        partition_epoch=leader_epoch,
        replicas=(0,),
    )
    return LeaderAndIsrRequest(HEADER, (LeaderAndIsrPartition(state, True),), (Endpoint(0, "127.0.0.1", 9092),))


class SlowPool:
    """Stands for the log pool: does what it is given when it is let."""

    def __init__(self, broker: HostileBroker) -> None:
        self.waiting: list[asyncio.Event] = []
        manager: Any = broker.replicas
        manager.in_log_pool = self.run

    async def run(self, call: Any) -> None:
        let = asyncio.Event()
        self.waiting.append(let)
        await let.wait()
        call()

    async def let(self, number: int) -> None:
        async def asked() -> bool:
            return len(self.waiting) > number

        await until_async(asked)
        self.waiting[number].set()


async def values_of(_topic: str) -> Any:
    broker, _ = parse_broker_settings({})
    return parse_topic_settings({}, broker)


async def test_a_stop_waits_for_the_leader_and_isr_before_it_even_if_its_sender_has_disconnected():
    broker = await HostileBroker().begin()
    pool = SlowPool(broker)
    begun = asyncio.ensure_future(broker.replicas.control.leader_and_isr(lead(1), values_of))
    stop = StopReplicaRequest(HEADER, (StopReplicaPartition(AT, None, True),))
    stopped = asyncio.ensure_future(broker.replicas.control.stop_replica(stop))
    await pool.let(0)  # the log's files
    begun.cancel()  # the controller's connection broke
    assert not stopped.done()
    await pool.let(1)  # the leader epoch
    assert not stopped.done()
    await pool.let(2)  # the deletion
    assert (await stopped).partitions == {AT: ErrorCode.NONE}
    await broker.replicas.until_quiet()
    assert AT not in broker.logs.logs
    assert not (broker.directory / str(AT)).exists(), "nothing comes into being after its deletion"
    broker.close()


async def test_the_leader_epoch_is_in_force_at_once_and_on_disk_before_the_response():
    broker = await HostileBroker().begin()
    pool = SlowPool(broker)
    response = asyncio.ensure_future(broker.replicas.control.leader_and_isr(lead(5), values_of))
    await pool.let(0)

    async def leads() -> bool:
        return AT in broker.logs.logs and [tuple(entry) for entry in broker.logs.logs[AT].epochs] == [(5, 0)]

    await until_async(leads)
    checkpoint = broker.directory / str(AT) / LEADER_EPOCH_CHECKPOINT
    assert not response.done()
    assert checkpoint.read_text() == ""
    await pool.let(1)
    assert (await response).partitions == {AT: ErrorCode.NONE}
    assert checkpoint.read_text() == "0\n1\n5 0\n"
    broker.close()
