"""Transactions in a mixed cluster: their coordinator is killed, and one of the other kind takes over.

``__transaction_state`` is read, byte for byte, by both kinds: a transaction that was open under one coordinator is
committed, or aborted by its timeout, by the next one, and a reader of committed data sees just that.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Position
from tests.integration.administered import ROUND
from tests.integration.mixed_cluster import MixedCluster
from tests.integration.swap_clients import LIMIT_SECONDS, Writer, consumer_of, read_all, retried

from tidegauge.groups import partition_of

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]
TOPIC, STATE = "data", "__transaction_state"
STATE_PARTITIONS = 9
TIMEOUT_MS = 15_000
"""Of transactions that their producer leaves; longer than a kill and its election take."""


class Scene:
    """Transactional producers of one cluster, and what they have committed."""

    def __init__(self, mixed: MixedCluster, directory: Path) -> None:
        self.mixed, self._directory = mixed, directory
        self.writers: list[Writer] = []
        mixed.create_topic(TOPIC, ROUND, **{"min.insync.replicas": "2"})
        self.writer(0).producer.init_transactions(LIMIT_SECONDS)  # makes the topic of the coordinators
        commit_offset(mixed, "first", 0)  # makes the topic of the groups
        for topic in (STATE, "__consumer_offsets"):
            mixed.wait_in_sync(topic)

    def writer(self, partition: int, **settings: Any) -> Writer:
        """Return a producer whose coordinator is the leader of this partition of ``__transaction_state``."""
        names = (f"id-{len(self.writers)}-{number}" for number in itertools.count())
        name = next(name for name in names if partition_of(name, STATE_PARTITIONS) == partition)
        given = {"transactional.id": name, "transaction.timeout.ms": 120_000, **settings}
        made = Writer(self.mixed.servers, name, self._directory / "history", **given)
        self.writers.append(made)
        return made

    def opened(self, partition: int, **settings: Any) -> Writer:
        """Return a producer with an open transaction in each partition."""
        writer = self.writer(partition, **settings)
        retried(lambda: writer.producer.init_transactions(LIMIT_SECONDS))
        writer.begin()
        self.write(writer)
        return writer

    def write(self, writer: Writer) -> None:
        """Write to each partition within the transaction."""
        for at in range(6):
            writer.send(TOPIC, at % len(ROUND), b"k")
        writer.flush()

    def partition_that_moves(self, *, from_kafka: bool) -> tuple[int, int, int]:
        """Return a ``__transaction_state`` partition, its leader and the next, of the other kind."""
        for partition, found in self.mixed.partitions(STATE).items():
            first, second = found.replicas[:2]
            if (self.mixed.is_kafkas(first), self.mixed.is_kafkas(second)) == (from_kafka, not from_kafka):
                return partition, first, second
        raise AssertionError("each order of brokers has a partition")

    def check(self) -> None:
        """Check that committed records alone are readable, to the end of the log: no transaction is open."""
        committed: dict[tuple[str, int], set[int]] = {(TOPIC, at): set() for at in range(len(ROUND))}
        for writer in self.writers:
            for at, offsets in writer.committed.items():
                committed[at] |= offsets
        positions = [Position(TOPIC, at, 0) for at in range(len(ROUND))]
        found = read_all(self.mixed.servers, positions, committed=True)
        assert {at: set(records) for at, records in found.items()} == committed


def killed(mixed: MixedCluster, partition: int, leader: int, successor: int) -> None:
    """Kill the coordinator, and wait until the other one leads."""
    mixed.kill(leader)
    until(lambda: mixed.leader(STATE, partition) == successor, LIMIT_SECONDS, f"{successor} takes over {partition}")


def returned(mixed: MixedCluster, broker_id: int) -> None:
    """Start a killed broker, and wait until every replica is in sync and it leads what it prefers."""
    mixed.start(broker_id)
    for topic in (TOPIC, STATE, "__consumer_offsets"):
        mixed.wait_in_sync(topic)
    mixed.elect_preferred(STATE, range(STATE_PARTITIONS))


def commit_offset(mixed: MixedCluster, group: str, offset: int) -> None:
    """Commit an offset of a group at partition 0."""
    consumer = consumer_of(mixed.servers, group, committed=True)
    try:
        retried(lambda: consumer.commit(offsets=[Position(TOPIC, 0, offset)], asynchronous=False))
    finally:
        consumer.close()


def offset_of(mixed: MixedCluster, group: str) -> int:
    """Return the committed offset of a group at partition 0."""
    consumer = consumer_of(mixed.servers, group, committed=True)
    try:
        [found] = retried(lambda: consumer.committed([Position(TOPIC, 0)], 20.0))
        return int(found.offset)
    finally:
        consumer.close()


def test_the_next_coordinator_ends_the_transactions_of_the_one_that_was_killed(
    mixed: MixedCluster, tmp_path: Path
) -> None:
    """Kafka's takes over from Tidegauge's, and the other way round: commit, abort, time out, and end that is torn."""
    scene = Scene(mixed, tmp_path)
    for turn, from_kafka in enumerate((True, False)):
        mixed.elect_preferred(STATE, range(STATE_PARTITIONS))
        partition, leader, successor = scene.partition_that_moves(from_kafka=from_kafka)
        until(lambda: mixed.leader(STATE, partition) == leader, LIMIT_SECONDS, f"{leader} coordinates")  # noqa: B023
        commits, aborts, torn = (scene.opened(partition) for _ in range(3))
        left = scene.opened(partition, **{"transaction.timeout.ms": TIMEOUT_MS})
        reader = consumer_of(mixed.servers, group := f"group-{turn}", committed=True)
        offsets = [Position(TOPIC, 0, 1 + turn)]
        retried(lambda: commits.producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 60))  # noqa: B023
        reader.close()
        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(torn.finish, commit=True)
            killed(mixed, partition, leader, successor)
            ending.result(LIMIT_SECONDS)
        scene.write(commits)
        commits.finish(commit=True)
        aborts.finish(commit=False)
        assert offset_of(mixed, group) == 1 + turn
        scene.check()  # the log's end is stable: the transaction that was left has timed out
        with pytest.raises(KafkaException):
            left.producer.commit_transaction(LIMIT_SECONDS)
        for writer in (commits, aborts, torn):
            writer.begin()
            scene.write(writer)
            writer.finish(commit=True)
        returned(mixed, leader)
        for writer in (commits, aborts):
            writer.refresh(TOPIC)
        for writer in (commits, aborts):
            writer.begin()
            scene.write(writer)
            writer.finish(commit=writer is commits)
        scene.check()
    assert mixed.unexpected() == []
