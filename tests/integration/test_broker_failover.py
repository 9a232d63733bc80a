"""Brokers die, freeze and come back: leaders from the ISR in AR order, nothing acknowledged lost.

Each test has a cluster of its own: it kills brokers.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.modes import IS_KRAFT
from tests.waiting import until, until_async

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.metadata import PartitionInfo
from tidegauge_client.producer import Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TOPIC = "orders"


@pytest.fixture
def own(make_cluster, request):
    """A cluster with a ZooKeeper of its own, which tests may kill too.

    Without the automatic rebalance: its first run comes 5 s after a controller's election, and may give a returning
    broker its leaderships back. And with a patient ISR: on a loaded machine a living follower may lag for seconds.
    """
    settings = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": "30000"}
    return make_cluster(zookeeper=None, settings=settings | getattr(request, "param", {}))


@pytest.fixture
async def admin(own):
    async with Admin(own.bootstrap_servers) as made:
        await made.create_topic(TOPIC, partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"})
        await made.wait_for_topic(TOPIC)
        yield made


async def partitions(admin: Admin) -> list[PartitionInfo]:
    topic = (await admin.describe_topics([TOPIC]))[0]
    return [info for _, info in sorted(topic.partitions.items())]


async def read_all(admin: Admin, cluster: LocalCluster) -> list[bytes | None]:
    """Every committed value of the topic, read by raw fetches from the leaders."""
    from tidegauge_client.consumer import Consumer  # noqa: PLC0415 - heavy, and not all tests read

    ends = await admin.list_offsets({TopicPartition(TOPIC, number): -1 for number in range(3)})
    values: list[bytes | None] = []
    async with Consumer(cluster.bootstrap_servers) as consumer:
        consumer.assign(list(ends))
        await consumer.seek_to_beginning()

        async def finished() -> bool:
            values.extend(record.value for record in await consumer.poll(timeout_ms=200))
            positions = [await position(consumer, at) for at in ends]
            return all(found >= end.offset for found, end in zip(positions, ends.values(), strict=True))

        await until_async(finished)
    return values


async def position(consumer, at: TopicPartition) -> int:
    found = consumer.position(at)
    return await found if asyncio.iscoroutine(found) else found


async def test_a_killed_leader_is_replaced_from_the_isr_in_ar_order_and_returns_as_follower(own, admin):
    """The first live ISR member in AR order leads (offlinePartitionLeaderElection); the old leader rejoins."""
    before = await partitions(admin)
    # Not the controller: its successor would take the dead out of the ISRs first, and elect under one more epoch.
    controller = own.status()["controller"]["broker"]
    victim = next(info.leader_id for info in before if info.leader_id != controller)
    await asyncio.to_thread(own.kill, victim)

    after: list[PartitionInfo] = []  # of one look: the next may come from a broker that knows less yet

    async def left() -> bool:
        after[:] = await partitions(admin)
        return all(info.leader_id not in {None, victim} and victim not in info.isr for info in after)

    await until_async(left)
    for old, new in zip(before, after, strict=True):
        in_sync = [broker for broker in old.isr if broker != victim]
        assert list(new.isr) == in_sync
        if old.leader_id == victim:
            assert new.leader_id == next(broker for broker in old.replicas if broker in in_sync)
        costs = old.leader_id == victim or not IS_KRAFT
        assert new.leader_epoch == old.leader_epoch + costs, "in ZooKeeper mode a follower's death costs an epoch too"
    await asyncio.to_thread(own.start, victim)

    async def back() -> bool:
        return all(set(info.isr) == {0, 1, 2} for info in await partitions(admin))

    await until_async(back)
    assert all(info.leader_id != victim for info in await partitions(admin))
    if not IS_KRAFT:  # there the order of an ISR is that of a hash set, as in Kafka 4.3
        assert all(info.isr[-1] == victim for info in await partitions(admin)), "the newcomer comes last in the ISR"


async def test_nothing_acknowledged_is_lost_or_doubled_when_leaders_die_in_mid_stream(own, admin):
    """KIP-98: acks=all with idempotence through a kill -9: each acknowledged record exactly once."""
    sent = [b"value-%d" % number for number in range(6_000)]
    async with Producer(own.bootstrap_servers, linger_ms=2) as producer:
        futures = []
        for number, value in enumerate(sent):
            futures.append(await producer.send(TOPIC, value, key=b"k%d" % (number % 7)))
            if number == 2_000:
                await asyncio.to_thread(own.kill, (await partitions(admin))[0].leader_id, expire=True)
            if number > 2_000 and number % 200 == 0:
                await asyncio.sleep(0)
        await producer.flush()
    assert [future.exception() for future in futures if future.exception()] == []
    assert Counter(await read_all(admin, own)) == Counter(sent)


@pytest.mark.zookeeper_mode("the controller is no broker")
async def test_the_death_of_the_controllers_own_broker_elects_another_with_a_higher_epoch(own, admin):
    """KafkaController.onControllerFailover: the new controller also removes the dead broker from leaders and ISRs."""
    before = own.status()["controller"]
    await asyncio.to_thread(own.kill, before["broker"], expire=True)

    def another() -> bool:
        now = own.status()["controller"]
        return now["broker"] not in {None, before["broker"]} and now["epoch"] == before["epoch"] + 1

    await asyncio.to_thread(until, another)

    async def left() -> bool:
        return all(
            info.leader_id not in {None, before["broker"]} and before["broker"] not in info.isr
            for info in await partitions(admin)
        )

    await until_async(left)
    await admin.create_topic("after", partitions=1, replication_factor=2)


@pytest.mark.long
@pytest.mark.parametrize("own", [{"zookeeper.session.timeout.ms": "12000"}], indirect=True, ids=["patient"])
async def test_a_restart_of_zookeeper_changes_no_leader_and_watches_work_afterwards(own, admin):
    """Sessions survive a restart that is shorter than their timeout; afterwards a death is noticed as before."""
    before = await partitions(admin)
    controller = own.status()["controller"]
    async with Producer(own.bootstrap_servers) as producer:
        await (await producer.send(TOPIC, b"before"))
        await asyncio.to_thread(own.kill, "zookeeper")
        await (await producer.send(TOPIC, b"meanwhile"))  # brokers serve without ZooKeeper
    await asyncio.to_thread(own.start, "zookeeper")
    await admin.create_topic("after", partitions=1, replication_factor=3)
    assert await partitions(admin) == before
    assert own.status()["controller"] == controller
    victim = next(info.leader_id for info in before if info.leader_id != controller["broker"])
    await asyncio.to_thread(own.kill, victim)

    async def left() -> bool:
        return all(victim not in info.isr for info in await partitions(admin))

    await until_async(left)


async def test_a_frozen_broker_loses_its_leaders_and_is_fenced_when_it_wakes(own, admin):
    """The zombie has an old epoch (FENCED_LEADER_EPOCH); after its session expired it registers again and follows."""
    victim = (await partitions(admin))[0].leader_id
    await asyncio.to_thread(own.pause, victim)
    try:

        async def left() -> bool:
            return all(
                info.leader_id not in {None, victim} and victim not in info.isr for info in await partitions(admin)
            )

        await until_async(left)
        async with Producer(own.bootstrap_servers) as producer:
            await (await producer.send(TOPIC, b"under a new epoch", partition=0))
    finally:
        await asyncio.to_thread(own.resume, victim)

    async def back() -> bool:
        return all(victim in info.isr for info in await partitions(admin))

    async def agree() -> bool:
        """A broker that was frozen may still say that it is in the ISR, so the replicas themselves are compared."""
        replicas = await admin.describe_replicas([TOPIC])
        ends = {
            (r.log_end_offset, tuple((e.leader_epoch, e.start_offset) for e in r.epochs))
            for rs in replicas.values()
            for r in rs or ()
            if r.partition == 0
        }
        return all(found is not None for found in replicas.values()) and len(ends) == 1 and min(ends)[0] > 0

    await until_async(back)
    await until_async(agree)


async def test_acks_all_is_refused_below_min_insync_replicas_and_taken_again_above(own, admin):
    """One of three replicas is left (min.insync.replicas=2): NOT_ENOUGH_REPLICAS until another is back."""
    first = (await partitions(admin))[0].leader_id
    others = [broker for broker in (0, 1, 2) if broker != first]
    for broker in others:
        await asyncio.to_thread(own.stop, broker)

    async def alone() -> bool:
        return (await partitions(admin))[0].isr == (first,)

    await until_async(alone)
    async with Producer(own.bootstrap_servers, request_timeout_ms=1_000, delivery_timeout_ms=1_500) as producer:
        with pytest.raises(TidegaugeError):
            await (await producer.send(TOPIC, b"not enough", partition=0))
    await asyncio.to_thread(own.start, others[0])
    async with Producer(own.bootstrap_servers) as producer:
        assert (await (await producer.send(TOPIC, b"enough", partition=0))).offset == 0
