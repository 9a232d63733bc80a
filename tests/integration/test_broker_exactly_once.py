"""The leader dies between its append and its response: the next leader knows the batch, and each record is there once.

KIP-98 (Kafka's ProducerStateManager): followers keep the producers' sequences from what they copy, so a retry that
reaches the next leader gets the offset of the first attempt. The death is no matter of luck: one follower is frozen,
so that acks=all cannot be fulfilled; the leader dies once the other follower has the records.

The lab ends the dead leader's ZooKeeper session; the frozen broker's outlasts its round.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.modes import SESSION_TIMEOUT
from tests.waiting import until_async

from tidegauge.partition import TopicPartition
from tidegauge.v1.metadata_pb2 import ReplicaDescription
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_client.metadata import PartitionInfo
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TOPIC = "orders"
AT = TopicPartition(TOPIC, 0)
BATCH = 20
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "600000",
    SESSION_TIMEOUT: "30000",
}


class Story:
    """One partition of three replicas, a producer that goes on through all rounds, and what it was promised.

    ``between`` counts the rounds in which the leader really died between append and response.
    """

    def __init__(self, cluster: LocalCluster, admin: Admin, producer: Producer) -> None:
        self.cluster = cluster
        self.admin = admin
        self.producer = producer
        self.sent = 0
        self.offsets: list[int] = []
        self.between = 0

    async def partition(self) -> PartitionInfo:
        return (await self.admin.describe_topics([TOPIC]))[0].partitions[0]

    async def replica(self, broker_id: int) -> ReplicaDescription:
        """Return this broker's replica, once a channel to it is open again."""

        async def found() -> list[ReplicaDescription] | None:
            live = (await self.admin.metadata([])).brokers
            # This one alone: a frozen broker would cost a second each time.
            chosen = [broker for broker in live.values() if broker.id == broker_id]
            return (await self.admin.describe_replicas_of(chosen, [TOPIC])).get(broker_id)

        (replica,) = await until_async(found) or ()
        return replica

    async def all_in_sync(self) -> bool:
        return set((await self.partition()).isr) == {0, 1, 2}

    async def first(self) -> None:
        """One record, so that the producer has its id: a frozen controller would give none."""
        self.offsets.append((await (await self.producer.send(TOPIC, b"0"))).offset)
        self.sent = 1

    async def round(self) -> None:
        """Append, copy to the next leader alone, kill, and see that the promises are kept by the next leader."""
        await until_async(self.all_in_sync, limit=150)
        before = await self.partition()
        leader = before.leader_id
        assert leader is not None
        heir, other = (broker for broker in before.replicas if broker != leader)
        end = (await self.replica(leader)).log_end_offset + BATCH
        await asyncio.to_thread(self.cluster.pause, other)
        try:
            promises = [await self.producer.send(TOPIC, b"%d" % (self.sent + number)) for number in range(BATCH)]
            self.sent += BATCH

            async def copied() -> bool:
                return (await self.replica(heir)).log_end_offset == end

            await until_async(copied, limit=150)
            # On a machine that stalls for seconds the frozen one's session ends first: then they complete.
            self.between += not any(promise.done() for promise in promises)
            await asyncio.to_thread(self.cluster.kill, leader, expire=True)
        finally:
            await asyncio.to_thread(self.cluster.resume, other)
        responses = await asyncio.wait_for(asyncio.gather(*promises), 150)
        self.offsets += [response.offset for response in responses]

        async def inherited() -> bool:
            after = await self.partition()
            return after.leader_id == heir and after.leader_epoch > before.leader_epoch

        await until_async(inherited, limit=150)
        assert (await self.replica(heir)).log_end_offset == end, "a record was appended again"
        await asyncio.to_thread(self.cluster.start, leader)


async def read_all(cluster: LocalCluster, count: int) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record."""
    records: list[tuple[int, bytes | None]] = []
    async with Consumer(cluster.bootstrap_servers) as consumer:
        consumer.assign([AT])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(150):
            while len(records) < count:
                records += [(record.offset, record.value) for record in await consumer.poll(500)]
        assert await consumer.poll(200) == []
    return records


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.long)])
async def test_a_leader_that_dies_between_append_and_response_costs_no_record_and_doubles_none(
    make_cluster, rounds: int
):
    cluster = make_cluster(settings=SETTINGS)
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
        await admin.wait_for_topic(TOPIC)
        async with Producer(cluster.bootstrap_servers, request_timeout_ms=60_000, linger_ms=20) as producer:
            story = Story(cluster, admin, producer)
            await story.first()
            for _ in range(rounds):
                await story.round()
            for _ in range(rounds):
                if story.between < rounds / 2:  # the machine stalled for seconds
                    await story.round()
            assert (producer.counters.acked, producer.counters.failed) == (story.sent, 0)
            assert story.between >= rounds / 2
            assert producer.counters.retries >= story.between
    records = await read_all(cluster, story.sent)
    assert [value for _, value in records] == [b"%d" % number for number in range(story.sent)]
    assert [offset for offset, _ in records] == story.offsets == list(range(story.sent))
