"""Compaction of __consumer_offsets keeps the last commit of each partition, and tombstones long enough."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from tests.integration.test_groups import LIMIT_SECONDS, ask, described
from tests.waiting import until

from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge_client import Admin
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "16384",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
GROUPS = [f"g{number}" for number in range(12)]
DELETED = GROUPS[::3]
ROUNDS, PARTITIONS = 60, 3
RECORD_BYTES = 60
"""Of a commit in the log, at the least."""


def commits(number: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("t", at): OffsetAndMetadata(number + at, metadata=f"{number}") for at in range(PARTITIONS)}


async def commit_rounds(admin: Admin, groups: Collection[str], numbers: range) -> None:
    for number in numbers:
        await asyncio.gather(*(admin.commit_offsets(group, commits(number)) for group in groups))


def size(cluster: LocalCluster) -> int:
    return sum(
        path.stat().st_size
        for broker in (0, 1, 2)
        for path in layout.broker_data(cluster.directory, broker).glob(f"{OFFSETS_TOPIC}-*/*.log")
    )


def test_what_was_committed_and_deleted_is_so_after_compactions_and_restarts(brokers: LocalCluster) -> None:
    """Each round replaces the commits of the one before, groups are deleted between, all brokers are killed, twice."""
    ask(brokers, lambda admin: admin.create_topic("t", partitions=3, replication_factor=3))
    ask(brokers, lambda admin: commit_rounds(admin, GROUPS, range(ROUNDS)))
    for group in DELETED:
        ask(brokers, lambda admin, group=group: admin.delete_group(group))
    kept = [group for group in GROUPS if group not in DELETED]
    for _ in range(2):
        ask(brokers, lambda admin: commit_rounds(admin, kept, range(ROUNDS, 2 * ROUNDS)))
        written = 3 * ROUNDS * len(kept) * PARTITIONS * RECORD_BYTES
        until(
            lambda written=written: size(brokers) < written,
            timeout=LIMIT_SECONDS,
            what="compaction has joined segments",
        )
        for broker in (0, 1, 2):
            brokers.kill(broker)
        for broker in (0, 1, 2):
            brokers.start(broker)
        brokers.wait_ready()
        for group in kept:
            found = ask(brokers, lambda admin, group=group: admin.committed_offsets(group))
            assert found == commits(2 * ROUNDS - 1), group
        for group in DELETED:
            assert described(brokers, group).state == "Dead", group
            assert ask(brokers, lambda admin, group=group: admin.committed_offsets(group)) == {}, group
