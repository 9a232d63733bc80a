"""Fetch sessions whose topics get other ids: a partition keeps the name and id with which it entered its session.

Source: FetchSession's CachedPartition (KIP-516), ReplicaManager.readFromLog.
"""

from __future__ import annotations

import json

import confluent_kafka
import pytest
from kazoo.client import KazooClient
from tests import kafka_requests
from tests.integration.conftest import MakeCluster
from tests.labs import make_topic
from tests.waiting import until, until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 90.0
TOPIC = "again"
OK, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


def fetched(cluster: LocalCluster, session_id: int, epoch: int, topic_id: str = "") -> tuple[int, list[int]]:
    """Fetch from broker 0, a topic by its id or what the session stands for; return the session and the errors."""
    topics = [FetchTopic(topic_id=topic_id_bytes(topic_id), partitions=[FetchPartition(0)])] if topic_id else []
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics)
    response = kafka_requests.ask(cluster.kafka_bootstrap_servers[0], apis.FETCH, request, 13)
    assert response.error_code == 0
    return response.session_id, [one.error_code for topic in response.responses for one in topic.partitions]


async def id_of(admin: Admin) -> str:
    return (await admin.metadata()).topics[TOPIC].topic_id


async def test_a_session_outlives_its_topic(make_cluster: MakeCluster) -> None:
    """After the deletion the partition is unknown; when there is a topic of that name again, its id is another one."""
    cluster = make_cluster(brokers=1)
    await make_topic(cluster, TOPIC, [0])
    async with Admin(cluster.bootstrap_servers) as admin:
        topic_id = await id_of(admin)
        session_id, errors = fetched(cluster, 0, 0, topic_id)
        assert (session_id > 0, errors) == (True, [OK])
        epoch = 1
        await admin.delete_topic(TOPIC)

        def next_error(wanted: ErrorCode) -> bool:
            nonlocal epoch
            _, errors = fetched(cluster, session_id, epoch)
            epoch += 1
            assert errors in ([], [wanted]), "no other error on the way"
            return errors == [wanted]

        until(lambda: next_error(UNKNOWN_TOPIC_OR_PARTITION), LIMIT_SECONDS, what="the deletion")

        async def is_created() -> bool:
            try:
                await make_topic(cluster, TOPIC, [0])
            except TidegaugeError as problem:
                assert problem.code is ErrorCode.TOPIC_ALREADY_EXISTS  # noqa: PT017 - it is being deleted
                return False
            return True

        await until_async(is_created, limit=LIMIT_SECONDS, what="the topic is there again")
        assert await id_of(admin) != topic_id
        until(lambda: fetched(cluster, 0, -1, topic_id) == (0, [UNKNOWN_TOPIC_ID]), LIMIT_SECONDS, what="no session")
        for _ in range(2):
            assert fetched(cluster, session_id, epoch) == (session_id, [INCONSISTENT_TOPIC_ID])
            epoch += 1


async def test_followers_go_on_when_a_tool_has_removed_a_topics_id(make_cluster: MakeCluster) -> None:
    """KAFKA-14190: the next controller gives the topic another id, which the replicas refuse, and they replicate on."""
    cluster = make_cluster(settings={"inter.broker.listener.name": "PLAINTEXT"})
    await make_topic(cluster, TOPIC, [0, 1, 2], **{"min.insync.replicas": "3"})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers), "acks": "all", "message.timeout.ms": 60_000}
    )

    def produce() -> None:
        failed: list[object] = []
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        assert (producer.flush(LIMIT_SECONDS), failed) == (0, [])

    produce()
    zookeeper = KazooClient(cluster.file.zookeeper_address)
    zookeeper.start(LIMIT_SECONDS)
    path = f"/brokers/topics/{TOPIC}"
    try:
        async with Admin(cluster.bootstrap_servers) as admin:
            before = await id_of(admin)
            znode = json.loads(zookeeper.get(path)[0])
            assert znode.pop("topic_id") == before
            zookeeper.set(path, json.dumps(znode | {"version": 2}).encode())
            zookeeper.delete("/controller")

            async def has_another_id() -> bool:
                return await id_of(admin) not in {before, ""}

            await until_async(has_another_id, limit=LIMIT_SECONDS, what="the next controller's id")
    finally:
        zookeeper.stop()
        zookeeper.close()
    for _ in range(3):
        produce()
