"""A partition is deleted if ZooKeeper has no assignment of it; if that can't be read, nothing is deleted."""

from __future__ import annotations

import pytest
from config_zookeeper import FakeZooKeeper

from tidegauge.partition import TopicPartition
from tidegauge.znodes import TopicNode, topic_path
from tidegauge_broker.server.cluster.zookeeper.deleted_partitions import deleted_partitions
from tidegauge_controller.zookeeper.client import ZooKeeperError

HERE, SHRUNK, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)


async def test_what_has_no_assignment_is_deleted() -> None:
    """A topic that was created again may have fewer partitions."""
    zookeeper = FakeZooKeeper()
    zookeeper.put(topic_path("t"), TopicNode({0: (1, 2)}, "id").encode())
    assert await deleted_partitions(zookeeper, [HERE, SHRUNK, GONE]) == {SHRUNK, GONE}


async def test_a_topic_that_cannot_be_read_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = FakeZooKeeper()
    zookeeper.put(topic_path("t"), b"rubbish")
    assert await deleted_partitions(zookeeper, [HERE, GONE]) == {GONE}

    async def fails(_path: str) -> None:
        raise ZooKeeperError

    monkeypatch.setattr(zookeeper, "get", fails)
    assert await deleted_partitions(zookeeper, [HERE, GONE]) == frozenset()
