"""A coordinator that may have been replaced proves its leadership, or gives out no stable offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidegauge.cluster_metadata import Leadership, MetadataUnavailable
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.coordinators import leadership_proof
from tidegauge_broker.server.coordinators.leadership_proof import LeadershipProof, SharedProofs
from tidegauge_broker.server.wire.kafka.eager import begun

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


async def partitioned(_at: TopicPartition) -> Leadership:
    raise MetadataUnavailable("the session ended")


def state(leader: int, leader_epoch: int) -> Leadership:
    return Leadership(leader, leader_epoch, (0, 1, 2), False, 3, 7)


def proof(replicas: Replicas, read: Callable[[TopicPartition], Awaitable[Leadership | None]]) -> LeadershipProof:
    return LeadershipProof(US, replicas, read, lambda: replicas.time_ms, lambda: FETCH_WAIT_MS, replicas.pause)


@pytest.mark.parametrize(
    ("leader", "epoch", "is_proven"), [(US, EPOCH, True), (US, EPOCH + 2, False), (2, EPOCH + 1, False)]
)
async def test_the_state_in_zookeeper_proves_it(leader: int, epoch: int, is_proven: bool) -> None:
    """Rule 1: also where the same broker leads again, since another may have led in between."""

    async def read(_at: TopicPartition) -> Leadership:
        return state(leader, epoch)

    assert await proof(Replicas(lambda _: {1: 0, 2: 0}), read).holds(AT) is is_proven


async def test_a_state_that_is_none_proves_nothing() -> None:
    """A topic that is deleted has no leader, whatever its followers do."""

    async def read(_at: TopicPartition) -> None:
        return None

    assert not await proof(Replicas(every(100)), read).holds(AT)


async def test_without_zookeeper_two_fetches_of_all_followers_prove_it() -> None:
    """Rule 2: brokers go on without ZooKeeper, as Kafka's do; idle followers fetch twice a second."""
    assert await proof(Replicas(every(FETCH_WAIT_MS)), partitioned).holds(AT)


async def test_a_zookeeper_that_does_not_respond_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is suspended for seconds before it ends."""
    monkeypatch.setattr(leadership_proof, "STORE_SECONDS", 0)

    async def read(_at: TopicPartition) -> Leadership:
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

    async def read(_at: TopicPartition) -> Leadership:
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


class Proofs:
    """Proofs that end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[TopicPartition, asyncio.Future[bool]]] = []

    async def prove(self, topic_partition: TopicPartition) -> bool:
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.begun.append((topic_partition, end))
        return await end


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_requests_share_the_proof_that_begins_after_them() -> None:
    """Rule 4: a proof that was in progress when a request came says nothing of the time after it."""
    proofs = Proofs()
    shared = SharedProofs(proofs.prove)
    first = [asyncio.ensure_future(shared.holds(AT)) for _ in range(3)]
    await settle()
    assert len(proofs.begun) == 1
    second = [asyncio.ensure_future(shared.holds(AT)) for _ in range(1_000)]
    await settle()
    assert len(proofs.begun) == 1, "it waits for its turn"
    proofs.begun[0][1].set_result(True)
    assert await asyncio.gather(*first) == [True] * 3
    await settle()
    assert len(proofs.begun) == 2
    third = asyncio.ensure_future(shared.holds(AT))
    proofs.begun[1][1].set_result(False)
    assert await asyncio.gather(*second) == [False] * 1_000
    await settle()
    proofs.begun[2][1].set_result(True)
    assert await third
    assert not shared._running
    assert not shared._following


async def test_partitions_are_proven_side_by_side() -> None:
    """A proof that waits for followers holds up its own partition alone."""
    proofs = Proofs()
    shared = SharedProofs(proofs.prove)
    other = TopicPartition("__consumer_offsets", 2)
    asked = [asyncio.ensure_future(shared.holds(at)) for at in (AT, other)]
    await settle()
    assert [at for at, _ in proofs.begun] == [AT, other]
    proofs.begun[1][1].set_result(True)
    assert await asked[1]
    assert not asked[0].done()
    proofs.begun[0][1].set_result(True)
    assert await asked[0]


async def test_a_client_that_leaves_takes_no_proof_from_others() -> None:
    """Its handler is cancelled; so it is when it was the only one, and the next request has a proof of its own."""
    proofs = Proofs()
    shared = SharedProofs(proofs.prove)
    leaver, other = (asyncio.ensure_future(shared.holds(AT)) for _ in range(2))
    await settle()
    leaver.cancel()
    await settle()
    proofs.begun[0][1].set_result(True)
    assert await other


async def test_a_proof_that_fails_ends_no_other() -> None:
    """A defect only fails the requests that share it."""
    proofs = Proofs()
    shared = SharedProofs(proofs.prove)
    failed = asyncio.ensure_future(shared.holds(AT))
    await settle()
    following = asyncio.ensure_future(shared.holds(AT))
    await settle()
    proofs.begun[0][1].set_exception(RuntimeError("defect"))
    with pytest.raises(RuntimeError, match="defect"):
        await failed
    await settle()
    proofs.begun[1][1].set_result(True)
    assert await following
