"""What tests on real brokers do again and again."""

from __future__ import annotations

from tidegauge.partition import TopicPartition
from tidegauge_client import Admin
from tidegauge_lab.cluster import LocalCluster


async def make_topic(brokers: LocalCluster, name: str, replicas: list[int], **settings: str) -> TopicPartition:
    """A topic of one partition on these brokers, with a leader; gives the partition."""
    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(name, assignment=[replicas], configs=settings)
        await admin.wait_for_topic(name)
    return TopicPartition(name, 0)
