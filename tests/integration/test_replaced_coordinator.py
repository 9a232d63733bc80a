"""A group coordinator that was replaced and does not know it gives out no stable offsets (KIP-447).

Its clients reach it, and it reaches no other broker. Kafka's gives them what it has, which the next coordinator's
commits have overtaken, and a client that copies exactly once copies records twice.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.modes import IS_KRAFT
from tests.waiting import until_async

from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge.kafka.apis import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidegauge.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Plane, Switches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
SETTINGS = {"auto.leader.rebalance.enable": "false"}
TOPIC = "orders"


class Coordinators:
    """Requests about one group's offset to a broker of the test's choice, past any metadata."""

    def __init__(self, cluster: LocalCluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    async def _ask(self, broker_id: int, key: int, request: Any, version: int) -> Any:
        channel = KafkaChannel(self._cluster.kafka_bootstrap_servers[broker_id], "test", Dialer())
        try:
            return await channel.request(key, request, 60, at_most=version, at_least=version)
        finally:
            channel.close()

    async def find(self, broker_id: int) -> tuple[int, TopicPartition]:
        """Return a broker's coordinator, -1 for none, and the group's partition."""
        found = await self._ask(broker_id, FIND_COORDINATOR, FindCoordinatorRequest(self._group), 3)
        async with Admin(self._cluster.bootstrap_servers) as admin:
            known = (await admin.metadata([OFFSETS_TOPIC])).topics[OFFSETS_TOPIC].partitions
        partition = partition_of(self._group, len(known)) if known else -1
        return found.node_id, TopicPartition(OFFSETS_TOPIC, partition)

    async def commit(self, broker_id: int, offset: int) -> ErrorCode:
        """Commit an offset as an administrator does."""
        topics = [OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, offset)])]
        response = await self._ask(broker_id, OFFSET_COMMIT, OffsetCommitRequest(self._group, topics=topics), 8)
        return ErrorCode.of(response.topics[0].partitions[0].error_code)

    async def fetch(self, broker_id: int, *, stable: bool) -> ErrorCode | int:
        """Return the offset that a broker gives out, or its error."""
        wanted = OffsetFetchRequest(self._group, [OffsetFetchRequestTopic(TOPIC, [0])], require_stable=stable)
        response = await self._ask(broker_id, OFFSET_FETCH, wanted, 7)
        error = ErrorCode.of(response.error_code)
        return error if error is not ErrorCode.NONE else int(response.topics[0].partitions[0].committed_offset)


@pytest.fixture
async def coordinators(brokers: LocalCluster, request: pytest.FixtureRequest) -> Coordinators:
    """A group that has committed offset 5 of a topic."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    found = Coordinators(brokers, name)
    async with Admin(brokers.bootstrap_servers) as admin:
        if TOPIC not in (await admin.metadata()).topics:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=3)
            await admin.wait_for_topic(TOPIC)

    async def is_committed() -> bool:
        leader, _ = await found.find(0)
        return leader >= 0 and await found.commit(leader, 5) is ErrorCode.NONE

    await until_async(is_committed, limit=150, what="the group has a coordinator")
    return found


async def next_leader(lab: Switches, at: TopicPartition, others: list[int]) -> int:
    """Wait until one of these brokers leads a partition; return it."""
    found: list[int] = []

    async def leads() -> bool:
        found[:] = [one for one in others if (await lab.observe(one, [at.topic]))[at].role == "leader"]
        return bool(found)

    await until_async(leads, limit=150, what=f"another leader of {at}")
    return found[0]


@pytest.mark.zookeeper_mode("a coordinator that leads by its own metadata gives out stable offsets, as in Kafka 4")
async def test_a_replaced_coordinator_gives_out_no_stable_offsets(
    brokers: LocalCluster, lab: Switches, coordinators: Coordinators
) -> None:
    """Clients that require stable offsets look for the next coordinator; others get what this one has, as in Kafka."""
    zombie, at = await coordinators.find(0)
    others = [one for one in (0, 1, 2) if one != zombie]
    await lab.isolate(zombie, Plane.BROKERS)
    await lab.isolate(zombie, Plane.ZOOKEEPER)
    heir = await next_leader(lab, at, others)

    async def is_committed() -> bool:
        return await coordinators.commit(heir, 7) is ErrorCode.NONE

    await until_async(is_committed, limit=150, what="the next coordinator commits")
    assert await coordinators.fetch(zombie, stable=False) == 5
    assert await coordinators.fetch(zombie, stable=True) is ErrorCode.NOT_COORDINATOR
    assert await coordinators.fetch(heir, stable=True) == 7


async def test_without_zookeeper_followers_prove_who_leads(lab: Switches, coordinators: Coordinators) -> None:
    """Brokers go on without ZooKeeper, or controllers, and so do their coordinators: no controller can replace one."""
    leader, _ = await coordinators.find(0)
    for one in (0, 1, 2):
        await lab.isolate(one, Plane.CONTROLLERS if IS_KRAFT else Plane.ZOOKEEPER)
    assert await coordinators.fetch(leader, stable=True) == 5
