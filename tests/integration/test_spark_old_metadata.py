"""The start of Spark's readers when the only broker in ``kafka.bootstrap.servers`` has old metadata.

No Spark is started: readers plan in this process, as they do in Spark's planner.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.test_lab_faults import roles, write
from tests.labs import make_topic
from tests.waiting import until_async

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Direction, Plane, Switches
from tidegauge_spark import source
from tidegauge_spark.offsets import from_json
from tidegauge_spark.options import parse_options
from tidegauge_spark.transport import ClusterClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
SETTINGS = {"auto.leader.rebalance.enable": "false"}


async def test_a_broker_that_the_controller_can_not_reach_hides_no_topic_and_shows_no_deleted_one(
    brokers: LocalCluster, lab: Switches, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, leader, old = roles(brokers)
    deleted = await make_topic(brokers, "deleted", [controller, leader])
    new = TopicPartition("new", 0)
    old_address, new_address = (brokers.file.broker(one).address for one in (old, controller))
    async with Admin(brokers.bootstrap_servers) as admin:

        async def shown(address: str) -> set[str]:
            topics = (await admin.metadata_of(address, [deleted.topic, "new"])).topics.values()
            return {topic.name for topic in topics if topic.error is ErrorCode.NONE}

        assert await shown(old_address) == {"deleted"}
        await lab.isolate(old, Plane.BROKERS, Direction.IN)
        await admin.create_topic("new", assignment=[[controller, leader]])
        await admin.delete_topic(deleted.topic, timeout_ms=30_000)

        async def is_known() -> bool:
            return await shown(new_address) == {"new"}

        await until_async(is_known)
        assert await write(brokers, new, b"m1", controller, acks=-1) is ErrorCode.NONE
        assert await shown(old_address) == {"deleted"}, "its metadata are old"
    given = {"kafka.bootstrap.servers": old_address, "subscribePattern": "^(new|deleted)$"}
    client = ClusterClient(parse_options(given, streaming=False).connection)
    monkeypatch.setattr(source, "_client", lambda _options: client)
    batch = source.TidegaugeReader(parse_options(given, streaming=False))
    stream = source.TidegaugeStreamReader(parse_options(given, streaming=True))
    try:
        tasks = await asyncio.to_thread(batch.partitions)
        assert [task.offsets.topic_partition for task in tasks] == [new]
        assert from_json(await asyncio.to_thread(stream.initialOffset)) == {new: 1}
    finally:
        client.close()
