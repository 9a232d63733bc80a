"""Topics are extended and deleted: added partitions, deletion while a replica's broker is down, automatic creation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_client.producer import Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


@pytest.fixture
def view(cluster: LocalCluster) -> Iterator[ZooKeeperView]:
    made = ZooKeeperView(cluster.file.zookeeper_address)
    yield made
    made.close()


@pytest.fixture
async def admin(cluster: LocalCluster):
    async with Admin(cluster.bootstrap_servers) as made:
        yield made


def directories(cluster: LocalCluster, broker: int, topic: str) -> list[Path]:
    """The partition directories of a topic that a broker has and does not delete."""
    data = cluster.directory / f"broker-{broker}" / "data"
    return sorted(path for path in data.glob(f"{topic}-*") if not path.name.endswith("-delete"))


async def test_partitions_are_added_where_the_algorithm_or_the_user_says(admin, view):
    """The algorithm continues from the first broker of partition 0; a list names the new ones only."""
    await admin.create_topic("growing", assignment=[[1, 0], [2, 1]])
    await admin.create_partitions("growing", 4)
    await admin.create_partitions("growing", 5, assignment=[[0, 2]])
    assigned = view.json("/brokers/topics/growing")["partitions"]
    # n = 3, start = shift = 1 (the place of broker 1), from partition 2 on; at partition 3 the shift becomes 2.
    assert assigned == {"0": [1, 0], "1": [2, 1], "2": [0, 2], "3": [1, 2], "4": [0, 2]}
    assert view.znode("/brokers/topics/growing").version == 2
    await admin.wait_for_topic("growing", partitions=5)
    topic = (await admin.describe_topics(["growing"]))[0]
    assert {number: info.leader_id for number, info in topic.partitions.items()} == {0: 1, 1: 2, 2: 0, 3: 1, 4: 0}
    for partition in range(5):
        state = view.state("growing", partition)
        assert (state["leader_epoch"], state["isr"]) == (0, assigned[str(partition)])
    with pytest.raises(TidegaugeError, match=r"Topic already has 5 partitions\."):
        await admin.create_partitions("growing", 5)


async def test_a_deletion_waits_for_the_broker_of_a_replica_and_then_finishes(cluster, admin, view):
    """The topic no longer exists for clients at once; marker and znodes stay until the last replica is deleted.

    The stopped broker is not the controller: a controller that finds the marker when it is elected, as it may when the
    old one has just stopped, deletes no replica before the broker is back (TopicDeletionManager.init).
    """
    controller = view.json("/controller")["brokerid"]
    first, stopped = (broker for broker in range(3) if broker != controller)
    await admin.create_topic("going", assignment=[[controller, first], [first, stopped]])
    await asyncio.to_thread(cluster.stop, stopped)
    await admin.delete_topic("going")
    await admin.wait_for_topic_gone("going")
    assert "going" not in await admin.list_topics()
    until(lambda: not directories(cluster, controller, "going") + directories(cluster, first, "going"))
    assert view.exists("/admin/delete_topics/going")
    assert view.exists("/brokers/topics/going")
    assert len(directories(cluster, stopped, "going")) == 1
    with pytest.raises(TidegaugeError, match=r"Topic 'going' is marked for deletion\.") as refused:
        await admin.create_topic("going", partitions=1, replication_factor=1)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    await asyncio.to_thread(cluster.start, stopped)
    until(lambda: not view.exists("/admin/delete_topics/going"), timeout=150)
    assert not [path for path in view.tree() if "going" in path]
    assert directories(cluster, stopped, "going") == []
    await admin.create_topic("going", assignment=[[stopped, controller]])
    await admin.delete_topic("going")


async def test_a_client_may_make_a_topic_by_asking_for_it(make_cluster):
    """``auto.create.topics.enable``, with num.partitions and default.replication.factor."""
    cluster = make_cluster(
        brokers=2,
        settings={"auto.create.topics.enable": "true", "num.partitions": "2", "default.replication.factor": "2"},
    )
    async with Producer(cluster.bootstrap_servers) as producer, Admin(cluster.bootstrap_servers) as admin:
        await (await producer.send("wished-for", b"one"))
        await admin.wait_for_topic("wished-for", partitions=2)
        topic = (await admin.describe_topics(["wished-for"]))[0]
        assert [sorted(info.replicas) for info in topic.partitions.values()] == [[0, 1], [0, 1]]
        # Asking for its description is no wish.
        with pytest.raises(TidegaugeError):
            await admin.describe_topics(["only-looked-at"])
        assert await admin.list_topics() == ["wished-for"]
