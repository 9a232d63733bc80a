"""`replica.truncation.rule` on real processes: what a replica truncates when it comes back, and that the logs then
agree.

The rules: docs/replication.md. A follower is killed before its high watermark was ever written to its checkpoint
file: by the rule of 0.10.2 it truncates everything and copies it again. By KIP-101 and KIP-279 it asks the leader and
truncates nothing; by KIP-320 it just fetches. The losses of each rule are held by ``tests/unit/core/test_stories.py``.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.modes import IS_KRAFT
from tests.waiting import until, until_async

from tidegauge.event_log import read_events
from tidegauge.v1.metadata_pb2 import ReplicaDescription
from tidegauge_client import Admin, Producer
from tidegauge_client.metadata import PartitionInfo
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TOPIC = "orders"
COUNT = 30
HOUR_MS = "3600000"
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": HOUR_MS, "auto.leader.rebalance.enable": "false"}


async def partition(admin: Admin) -> PartitionInfo:
    return (await admin.describe_topics([TOPIC]))[0].partitions[0]


async def write(cluster: LocalCluster, count: int) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(count):
            await (await producer.send(TOPIC, b"%d" % number))


@pytest.mark.parametrize(
    ("rule", "cut"),
    [
        ("high-watermark", [(COUNT, 0)]),
        pytest.param("kip-101", [], marks=pytest.mark.long),
        ("kip-279", []),
        pytest.param("kip-320", [], marks=pytest.mark.long),
    ],
)
async def test_a_follower_that_comes_back_truncates_by_the_rule_and_catches_up(
    make_cluster, rule: str, cut: list[tuple[int, int]]
):
    cluster = make_cluster(brokers=2, settings={"replica.truncation.rule": rule, **SETTINGS})
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=2)
        await admin.wait_for_topic(TOPIC)
        await write(cluster, COUNT)
        leader, follower = (await partition(admin)).replicas
        cluster.kill(follower, expire=True)

        async def left() -> bool:
            return (await partition(admin)).isr == (leader,)

        await until_async(left, limit=150)
        await write(cluster, COUNT)
        cluster.start(follower)

        async def back() -> bool:
            return set((await partition(admin)).isr) == {leader, follower}

        await until_async(back, limit=150)
        await write(cluster, 1)

        async def replicas() -> list[ReplicaDescription]:
            """Both; a client's channel to a broker that was dead may need a moment."""
            responses = (await admin.describe_replicas([TOPIC])).values()
            found = [replica for response in responses for replica in response or ()]
            return found if len(found) == 2 else []

        found = await until_async(replicas)
        assert [replica.log_end_offset for replica in found] == [2 * COUNT + 1] * 2
        epochs = [[(entry.leader_epoch, entry.start_offset) for entry in replica.epochs] for replica in found]
        # A follower's death costs no leader epoch in KRaft mode.
        assert epochs[0] == epochs[1] == ([(0, 0)] if IS_KRAFT else [(0, 0), (1, COUNT)])

    def truncations() -> list[tuple[int, int]]:
        events = read_events(cluster.logs / f"broker-{follower}.events.jsonl")
        return [(event["old"], event["new"]) for event in events if event["kind"] == "truncation"]

    await asyncio.to_thread(until, lambda: truncations() == cut)
