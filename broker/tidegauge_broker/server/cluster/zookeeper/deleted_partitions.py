"""The partitions that are deleted, and the ids of topics, by ZooKeeper's state.

A broker's metadata does not have them: after a start or an election of the controller, it lacks partitions that exist
until the controller has sent them, those without leader longest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tidegauge.partition import TopicPartition
from tidegauge.znodes import MalformedZnode, TopicNode, topic_path
from tidegauge_controller.zookeeper.client import NoNode, ZooKeeperError


class TopicReader(Protocol):
    """Reads znodes, as ``ZooKeeper`` does."""

    async def get(self, path: str) -> tuple[bytes, object]:
        """Return what a znode holds, and its stat."""
        ...


async def topic_ids(zookeeper: TopicReader, topics: Collection[str]) -> dict[str, str]:
    """Return topics' ids by their znodes, empty without one; skip unreadable znodes."""
    found: dict[str, str] = {}
    for topic in topics:
        try:
            data, _ = await zookeeper.get(topic_path(topic))
            found[topic] = TopicNode.decode(topic, data).topic_id or ""
        except (ZooKeeperError, MalformedZnode):
            continue
    return found


async def deleted_partitions(
    zookeeper: TopicReader, partitions: Collection[TopicPartition]
) -> frozenset[TopicPartition]:
    """Return the partitions without assignment; unreadable topics count as existing."""
    gone: set[TopicPartition] = set()
    for topic in dict.fromkeys(at.topic for at in partitions):
        try:
            data, _ = await zookeeper.get(topic_path(topic))
            assigned = frozenset(TopicNode.decode(topic, data).assignment)
        except NoNode:
            assigned = frozenset()
        except (ZooKeeperError, MalformedZnode):
            continue
        gone |= {at for at in partitions if at.topic == topic and at.partition not in assigned}
    return frozenset(gone)
