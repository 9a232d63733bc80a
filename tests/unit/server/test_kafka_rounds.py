"""Replication over Kafka's protocol among brokers in one process: what a round waits for, and what it translates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafka_cluster import TOPIC, KafkaCluster
from kafka_service import KEYS, FakeService

from tidegauge.kafka.apis import PRODUCE
from tidegauge.kafka.frames import RequestHeader
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica import messages as core
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served import HANDLERS
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_client.records import NewRecord, encode_batch

TOPIC_ID = bytes(range(16))
MOST_TURNS = 12
"""Five messages in memory are read one turn after they were written; a task goes on one turn after its future."""


async def test_a_record_with_acks_all_waits_for_one_round_of_each_follower_and_for_no_timer(tmp_path: Path) -> None:
    """DelayedFetch.tryComplete with the append, DelayedProduce.tryComplete with the fetch that raises the HW."""
    cluster = KafkaCluster(tmp_path, 1, 3)
    try:
        client = await cluster.start()
        await cluster.until_followers_wait()
        batch = encode_batch([NewRecord(value=b"x")])
        request = ProduceRequest(
            None, -1, 30_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])]
        )
        for number in range(1, 4):
            response, turns = client.send(PRODUCE, 9, request), 0
            while not response.done():
                await asyncio.sleep(0)
                turns += 1
                assert turns <= MOST_TURNS
            assert response.result().responses[0].partition_responses[0].base_offset == number - 1
            await cluster.until_followers_wait()
            # A follower learns the high watermark one round later (KAFKA-9952: its move alone wakes no follower).
            assert cluster.offsets() == [(number, number), (number - 1, number), (number - 1, number)]
    finally:
        await cluster.close()


def epochs_on_disk(cluster: KafkaCluster, broker: int) -> list[str]:
    """Return partition 0's leader-epoch-checkpoint entries; none if it is missing."""
    path = cluster.brokers[broker].directory / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    return path.read_text().splitlines()[2:] if path.exists() else []


async def test_a_follower_writes_the_epochs_of_a_round_in_the_pool_and_nothing_waits_for_them(tmp_path: Path) -> None:
    """Each is a file that is synced, 2 ms of the event loop and more; a round may bring all partitions' epochs."""
    cluster = KafkaCluster(tmp_path, 2, 2)
    follower = cluster.brokers[1]
    try:
        client = await cluster.start()
        await cluster.until_followers_wait()
        follower.pool_is_free.clear()
        batch = encode_batch([NewRecord(value=b"x")])
        data = [PartitionProduceData(number, batch) for number in range(2)]
        response = await client.send(
            PRODUCE, 9, ProduceRequest(None, -1, 30_000, [TopicProduceData(TOPIC, partition_data=data)])
        )
        assert [one.error_code for one in response.responses[0].partition_responses] == [0, 0]
        assert (epochs_on_disk(cluster, 0), epochs_on_disk(cluster, 1)) == (["1 0"], [])
        follower.pool_is_free.set()
        await follower.replicas.until_quiet()
        assert epochs_on_disk(cluster, 1) == ["1 0"]
    finally:
        follower.pool_is_free.set()
        await cluster.close()


class Leader:
    """The handler of Fetch with one session cache; ``asked`` are the core's requests."""

    def __init__(self) -> None:
        self.asked: list[core.FetchRequest] = []
        self.name: str | None = "t"
        self.own_topic_id = ""

        async def fetch(_caller: Any, request: core.FetchRequest) -> Any:
            self.asked.append(request)
            results = [(core.FetchResult(one.topic_partition, high_watermark=5), b"") for one in request.partitions]
            return SimpleNamespace(partitions=results, pending=SimpleNamespace(release=lambda: None))

        def begin_follower_fetch(_caller: Any, request: core.FetchRequest, _pending: Any) -> Any:
            self.asked.append(request)
            results = [(core.FetchResult(one.topic_partition, high_watermark=5), b"") for one in request.partitions]
            return SimpleNamespace(done=lambda: True, result=lambda: results)

        self._service: Any = FakeService(
            fetch=fetch,
            begin_follower_fetch=begin_follower_fetch,
            responses=SimpleNamespace(for_follower=lambda _: SimpleNamespace(release=lambda: None)),
            topic_name=lambda _: self.name,
            replica_topic_id=lambda _: self.own_topic_id,
            for_old_client=None,
        )
        self._sessions = FetchSessionCache(10, lambda: 9)

    def rename(self, name: str | None) -> None:
        """Learn another name of the topic; None: it is unknown from now on."""
        self.name = name

    def fetch(self, epoch: int, offsets: dict[int, int], forgotten: tuple[int, ...] = ()) -> list[core.FetchPartition]:
        """Handle a follower's fetch; return what the core is asked."""
        partitions = [FetchPartition(number, 1, offset, 1, 0, 100) for number, offset in offsets.items()]
        request = FetchRequest(
            replica_state=ReplicaState(2, 7),
            session_id=9 if epoch else 0,
            session_epoch=epoch,
            topics=[FetchTopic("", TOPIC_ID, partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic("", TOPIC_ID, list(forgotten))] if forgotten else [],
        )
        header = RequestHeader(KEYS["Fetch"], 17, 1, "broker-2-fetcher-0", 0)
        HANDLERS[KEYS["Fetch"]](request, Context(self._service, Caller("c", "P"), self._sessions, lambda: 0, header))
        return list(self.asked[-1].partitions)


def test_what_a_session_stands_for_is_translated_once() -> None:
    """KIP-227: an incremental fetch names what changed; the core is asked for all, the rest as it was asked before."""
    leader = Leader()
    first = leader.fetch(0, {0: 3, 1: 4})
    second = leader.fetch(1, {1: 8})
    assert second == [first[0], core.FetchPartition(TopicPartition("t", 1), 8, 100, 1, 1, 0)]
    assert second[0] is first[0]


def test_a_partition_that_was_forgotten_is_asked_for_again() -> None:
    leader = Leader()
    leader.fetch(0, {0: 3, 1: 4})
    assert [one.topic_partition.partition for one in leader.fetch(1, {}, (1,))] == [0]
    assert [(one.topic_partition.partition, one.fetch_offset) for one in leader.fetch(2, {1: 2})] == [(0, 3), (1, 2)]


def test_a_partition_keeps_the_name_that_it_entered_its_session_with() -> None:
    """CachedPartition: the metadata may change between two fetches that name the same ids (KIP-516, KAFKA-14190)."""
    leader = Leader()
    leader.fetch(0, {0: 3})
    for name in ("renamed", None, "t"):
        leader.rename(name)
        asked = leader.fetch(len(leader.asked), {0: 4})
        assert [one.topic_partition for one in asked] == [TopicPartition("t", 0)]
    leader.rename("renamed")
    assert [str(one.topic_partition) for one in leader.fetch(4, {1: 0})] == ["t-0", "renamed-1"]
    assert [str(one.topic_partition) for one in leader.fetch(5, {}, (0,))] == ["renamed-1"]
    assert [str(one.topic_partition) for one in leader.fetch(6, {0: 4})] == ["renamed-1", "renamed-0"]


def test_a_partition_whose_id_was_unknown_gets_its_name_as_soon_as_that_is_known() -> None:
    """CachedPartition.maybeResolveUnknownName."""
    leader = Leader()
    leader.rename(None)
    assert leader.fetch(0, {0: 3}) == []
    leader.rename("t")
    assert [one.topic_partition for one in leader.fetch(1, {})] == [TopicPartition("t", 0)]
    leader.rename(None)
    assert [one.topic_partition for one in leader.fetch(2, {})] == [TopicPartition("t", 0)]


def test_a_replica_of_another_topic_with_the_name_is_not_asked_for() -> None:
    """INCONSISTENT_TOPIC_ID (KIP-516): a topic was made again, and this broker's replica is still of the former one."""
    leader = Leader()
    assert len(leader.fetch(0, {0: 3})) == 1
    leader.own_topic_id = topic_id_text(bytes(16))
    assert leader.fetch(1, {}) == []
    leader.own_topic_id = topic_id_text(TOPIC_ID)
    assert len(leader.fetch(2, {})) == 1


def test_other_topics_that_come_and_go_leave_a_session_as_it_is() -> None:
    leader = Leader()
    leader.fetch(0, {0: 3})
    standing = leader.asked[-1].standing
    leader.rename("t")
    leader.fetch(1, {})
    assert leader.asked[-1].standing is standing


async def test_a_record_in_one_of_many_partitions_has_the_leader_look_at_that_one_alone(tmp_path: Path) -> None:
    """The cost of a round grows with the partitions that have news, not with all that it covers."""
    cluster = KafkaCluster(tmp_path, 50, 3)
    looked_at: list[int] = []
    try:
        client = await cluster.start()
        await cluster.until_followers_wait()
        batch = encode_batch([NewRecord(value=b"x")])

        async def produce(partition: int) -> None:
            data = [PartitionProduceData(partition, batch)]
            await client.send(
                PRODUCE, 9, ProduceRequest(None, -1, 30_000, [TopicProduceData(TOPIC, partition_data=data)])
            )
            await cluster.until_followers_wait()

        for partition in range(50):
            await produce(partition)
        replicas = cluster.brokers[0].replicas
        begin_fetch = replicas.begin_fetch

        def counted(request: core.FetchRequest, room: Any) -> Any:
            assert request.standing is not None
            assert len(request.standing) == 50
            looked_at.append(len(request.partitions))
            return begin_fetch(request, room)

        replicas.begin_fetch = counted  # type: ignore[method-assign]
        for partition in (7, 7, 8):
            await produce(partition)
        # The new record, and the one before it: the follower has not been sent that high watermark yet.
        assert max(looked_at) == 2
        assert cluster.offsets() == [(1, 1)] * 3
    finally:
        await cluster.close()
