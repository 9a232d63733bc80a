"""A coordinator that may have been replaced proves its leadership, or gives out no stable offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidegauge.partition import TopicPartition
from tidegauge.znodes import MalformedZnode, PartitionStateNode
from tidegauge_broker.server.coordinators import leadership_proof
from tidegauge_broker.server.coordinators.leadership_proof import LeadershipProof
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_controller.zookeeper import NoNode, SessionExpired

AT = TopicPartition("__consumer_offsets", 1)
US, EPOCH = 0, 164
FETCH_WAIT_MS = 500
Fetches = Callable[[int], dict[int, int]]
"""When each follower fetched last, by the time."""


class Replicas:
    """A partition that this broker leads; ``fetches`` says when its followers fetched."""

    def __init__(self, fetches: Fetches, epoch_at: Callable[[int], int | None] = lambda _: EPOCH) -> None:
        self.time_ms = 1_000
        self._fetches = fetches
        self._epoch_at = epoch_at

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        assert topic_partition == AT
        return self._epoch_at(self.time_ms)

    def fetched_ms(self, topic_partition: TopicPartition) -> dict[int, int]:
        assert topic_partition == AT
        return self._fetches(self.time_ms)

    async def pause(self) -> None:
        self.time_ms += 10


def every(interval_ms: int) -> Fetches:
    """Let both followers fetch so often."""
    return lambda now_ms: dict.fromkeys((1, 2), now_ms - now_ms % interval_ms)


async def partitioned(_at: TopicPartition) -> PartitionStateNode:
    raise SessionExpired("the session ended")


def state(leader: int, leader_epoch: int) -> PartitionStateNode:
    return PartitionStateNode(leader, leader_epoch, (0, 1, 2), 7)


def proof(replicas: Replicas, read: Callable[[TopicPartition], Awaitable[PartitionStateNode]]) -> LeadershipProof:
    return LeadershipProof(US, replicas, read, lambda: replicas.time_ms, lambda: FETCH_WAIT_MS, replicas.pause)


@pytest.mark.parametrize(
    ("leader", "epoch", "is_proven"), [(US, EPOCH, True), (US, EPOCH + 2, False), (2, EPOCH + 1, False)]
)
async def test_the_state_in_zookeeper_proves_it(leader: int, epoch: int, is_proven: bool) -> None:
    """Rule 1: also where the same broker leads again, since another may have led in between."""

    async def read(_at: TopicPartition) -> PartitionStateNode:
        return state(leader, epoch)

    assert await proof(Replicas(lambda _: {1: 0, 2: 0}), read).holds(AT) is is_proven


@pytest.mark.parametrize("problem", [NoNode("gone"), MalformedZnode("rubbish")])
async def test_a_state_that_is_none_proves_nothing(problem: Exception) -> None:
    """A topic that is deleted has no leader, whatever its followers do."""

    async def read(_at: TopicPartition) -> PartitionStateNode:
        raise problem

    assert not await proof(Replicas(every(100)), read).holds(AT)


async def test_without_zookeeper_two_fetches_of_all_followers_prove_it() -> None:
    """Rule 2: brokers go on without ZooKeeper, as Kafka's do; idle followers fetch twice a second."""
    assert await proof(Replicas(every(FETCH_WAIT_MS)), partitioned).holds(AT)


async def test_a_zookeeper_that_does_not_respond_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is suspended for seconds before it ends."""
    monkeypatch.setattr(leadership_proof, "ZOOKEEPER_SECONDS", 0)

    async def read(_at: TopicPartition) -> PartitionStateNode:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    assert await proof(Replicas(every(FETCH_WAIT_MS)), read).holds(AT)


async def test_a_zombie_proves_nothing() -> None:
    """Its followers follow another; their last fetches are old."""
    assert not await proof(Replicas(lambda _: {1: 900, 2: 900}), partitioned).holds(AT)


async def test_one_fetch_may_have_been_on_its_way_for_long() -> None:
    """A broker that was frozen reads what a follower sent before it followed another."""
    assert not await proof(Replicas(lambda now_ms: {1: 1_000 if now_ms < 1_010 else 1_010}), partitioned).holds(AT)


async def test_each_member_of_the_isr_counts() -> None:
    """The next leader may be any of them."""
    assert not await proof(Replicas(lambda now_ms: {1: now_ms, 2: 900}), partitioned).holds(AT)


async def test_a_leader_that_is_alone_in_the_isr_needs_no_proof() -> None:
    """No other broker can be elected, but uncleanly."""
    assert await proof(Replicas(lambda _: {}), partitioned).holds(AT)


async def test_a_leadership_that_ends_meanwhile_is_not_proven() -> None:
    """Neither is one in a later epoch, in which the coordinator loads again."""

    def resigned_at(now_ms: int) -> int | None:
        return EPOCH if now_ms < 1_100 else None

    def elected_again_at(now_ms: int) -> int | None:
        return EPOCH if now_ms < 1_100 else EPOCH + 2

    for epoch_at in (resigned_at, elected_again_at):
        assert not await proof(Replicas(every(FETCH_WAIT_MS), epoch_at), partitioned).holds(AT)


async def test_who_does_not_lead_proves_nothing() -> None:
    """And asks for no proof."""
    assert not await proof(Replicas(every(100), lambda _: None), partitioned).holds(AT)


async def test_a_request_of_a_kafka_client_begins_without_a_task() -> None:
    """It is handled in the callback that has read it (``eager``)."""

    async def read(_at: TopicPartition) -> PartitionStateNode:
        return state(US, EPOCH)

    rest: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    wanted = proof(Replicas(every(100)), read)

    def handle() -> None:
        try:
            rest.set_result(begun(wanted.holds(AT)))
        except RuntimeError as problem:
            rest.set_exception(problem)

    asyncio.get_running_loop().call_soon(handle)
    assert await (await rest)
