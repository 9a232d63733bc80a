"""The last ISR member, unclean elections, controlled shutdown: states and epochs in ZooKeeper, step by step.

One course of events; each topic has its story.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.typed import Typed, typed
from tests.waiting import until, until_async
from tests.zookeeper_view import ZooKeeperView

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.producer import Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


class Story:
    """Reads states: leader, ISR, leader epoch, and whether the leader is recovering."""

    def __init__(self, view: ZooKeeperView) -> None:
        self._view = view

    def of(self, topic: str) -> tuple[int, list[int], int, bool]:
        state: dict[str, Any] = self._view.state(topic)
        return state["leader"], state["isr"], state["leader_epoch"], bool(state.get("leader_recovery_state"))

    def writes(self, topic: str) -> int:
        """How often the state has been written since its creation."""
        return int(self._view.state(topic)["partition_epoch"])

    def until(self, topic: str, leader: int, isr: list[int], epoch: int, *, recovering: bool = False) -> None:
        wanted = leader, isr, epoch, recovering
        until(lambda: self.of(topic) == wanted, timeout=150, what=f"{topic} should be {wanted}, is {self.of(topic)}")


async def tidegauge(cluster: LocalCluster, verb: str, *arguments: str) -> Typed:
    return await asyncio.to_thread(typed, verb, *arguments, "--dir", cluster.directory)


async def test_the_isr_shrinks_to_its_last_member_and_what_follows(make_cluster):
    cluster: LocalCluster = make_cluster(settings={"auto.leader.rebalance.enable": "false"})
    view = ZooKeeperView(cluster.file.zookeeper_address)
    story = Story(view)
    controller = view.controller()[0]
    a, b = (broker for broker in (0, 1, 2) if broker != controller)
    unclean = {"unclean.leader.election.enable": "true"}
    async with Admin(cluster.bootstrap_servers) as admin:
        for topic, replicas, configs in [
            ("led-by-b", [b, a], {}),
            ("clean", [a, b], {}),
            ("unclean", [a, b], unclean),
            ("alone", [a], {}),
        ]:
            await admin.create_topic(topic, assignment=[replicas], configs=configs)

        # Controlled shutdown: leaders move and followers leave in one write, so none is without a leader in between.
        await asyncio.to_thread(cluster.stop, b)
        story.until("led-by-b", a, [a], 1)
        story.until("clean", a, [a], 1)
        assert (story.writes("led-by-b"), story.writes("clean"), story.writes("alone")) == (1, 1, 0)
        async with Producer(cluster.bootstrap_servers) as producer:
            for topic in ("clean", "unclean", "alone"):
                await (await producer.send(topic, b"only a has it", partition=0))

        # The last member is never removed: no leader, the ISR stays, an epoch is used up.
        await asyncio.to_thread(cluster.kill, a, expire=True)
        for topic in ("led-by-b", "clean", "unclean"):
            story.until(topic, -1, [a], 2)
        story.until("alone", -1, [a], 1)
        line = f"\tTopic: clean\tPartition: 0\tLeader: none\tReplicas: {a},{b}\tIsr: {a}\tElr: N/A\tLastKnownElr: N/A"

        async def reported() -> bool:  # brokers hear of it after ZooKeeper
            return line in (await tidegauge(cluster, "describe-topic", "clean")).stdout.splitlines()

        await until_async(reported)

        # b is no member: only where unclean elections are allowed does it lead.
        await asyncio.to_thread(cluster.start, b)
        story.until("unclean", b, [b], 3, recovering=True)
        assert story.of("clean") == (-1, [a], 2, False)
        preferred = await tidegauge(
            cluster, "elect-leaders", "--election-type", "preferred", "--topic", "clean", "--partition", "0"
        )
        assert preferred.code == 1
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in preferred.stderr
        assert "Failed to elect leader for partition clean-0 under strategy" in preferred.stderr
        outcome = await admin.elect_leaders([TopicPartition("alone", 0)], unclean=True)
        problem = outcome[TopicPartition("alone", 0)]
        assert problem is not None
        assert problem.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        on_demand = await tidegauge(
            cluster, "elect-leaders", "--election-type", "unclean", "--topic", "clean", "--partition", "0"
        )
        assert on_demand.stdout == "Successfully completed leader election (UNCLEAN) for partitions clean-0\n"
        assert story.of("clean") == (b, [b], 3, True)
        assert story.of("led-by-b") == (-1, [a], 2, False)

        # a returns: it leads where alone in the ISR, in a new epoch; elsewhere it follows, truncated to b's log.
        await asyncio.to_thread(cluster.start, a)
        story.until("alone", a, [a], 2)
        story.until("led-by-b", a, [a, b], 3)
        story.until("clean", b, [b, a], 3)
        story.until("unclean", b, [b, a], 3)
        ends = await admin.list_offsets({TopicPartition(topic, 0): -1 for topic in ("alone", "clean", "unclean")})
        assert [end.offset for end in ends.values()] == [1, 0, 0], "what only a had is lost where b was elected"
    view.close()
