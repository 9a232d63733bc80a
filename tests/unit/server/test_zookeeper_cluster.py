"""The state that proves a leadership, as ZooKeeper has it (``Cluster.leadership``)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.cluster_metadata import Leadership, MetadataUnavailable
from tidegauge.partition import TopicPartition
from tidegauge.znodes import PartitionStateNode, state_path
from tidegauge_broker.server.cluster.zookeeper.cluster import ZooKeeperCluster
from tidegauge_controller.zookeeper.client import NoNode, SessionExpired

AT = TopicPartition("t", 0)


class Tree:
    """Has one znode, or fails."""

    def __init__(self, data: bytes | Exception) -> None:
        self._data = data

    async def get_latest(self, path: str) -> tuple[bytes, Any]:
        assert path == state_path(*AT)
        if isinstance(self._data, Exception):
            raise self._data
        return self._data, SimpleNamespace(version=9)


def cluster(data: bytes | Exception) -> ZooKeeperCluster:
    return ZooKeeperCluster(Tree(data), "id", 0)  # type: ignore[arg-type] # as far as a state needs it


async def test_a_state_has_the_version_of_its_znode_as_partition_epoch() -> None:
    found = await cluster(PartitionStateNode(1, 4, (1, 2), 7).encode()).leadership(AT)
    assert found == Leadership(1, 4, (1, 2), recovering=False, partition_epoch=9, controller_epoch=7)


@pytest.mark.parametrize("data", [NoNode("deleted"), b"rubbish"])
async def test_a_state_that_is_missing_or_malformed_is_none(data: bytes | Exception) -> None:
    """A topic that is deleted has no leader."""
    assert await cluster(data).leadership(AT) is None


async def test_without_a_response_the_state_is_unavailable() -> None:
    with pytest.raises(MetadataUnavailable):
        await cluster(SessionExpired("the session ended")).leadership(AT)
