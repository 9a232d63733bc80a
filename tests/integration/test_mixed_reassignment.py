"""Partitions move from Apache Kafka's brokers to Tidegauge's and back, under load, by a controller of either kind.

Two brokers of each kind. Kafka's own tool (kafka-reassign-partitions) begins each move with a throttle, which both
kinds keep to over Kafka's protocol, and takes it away when the move is over.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.conftest import MakeMixed
from tests.waiting import until

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

import confluent_kafka
from confluent_kafka import TopicPartition as Position
from tests.integration.mixed_cluster import MixedCluster
from tests.integration.swap_clients import LIMIT_SECONDS, Writer, read_all

from tidegauge_lab.local import layout

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(2400)]
TIDEGAUGES, KAFKAS = (0, 1), (2, 3)
MOVED, HEAVY = "moved", "heavy"
PARTITIONS = 2
HEAVY_RECORDS, RECORD_BYTES = 4_000, 1_000
THROTTLE_BYTES = 200_000
"""Per second, over ten seconds (replication.quota.window.num): half of HEAVY is copied at once, the rest takes ten."""
THROTTLED_SECONDS = 8.0


@pytest.fixture
def mixed(make_mixed: MakeMixed) -> MixedCluster:
    return make_mixed(KAFKAS, size=4)


@contextmanager
def load(writer: Writer) -> Iterator[None]:
    """Write to MOVED as long as the block lasts, with acks=all and idempotence; all must be acknowledged."""
    over = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            while not over.wait(0.005):
                if len(writer.producer) < 500:
                    for partition in range(PARTITIONS):
                        writer.send(MOVED, partition, b"k")
                writer.producer.poll(0)
        except BaseException as problem:  # noqa: BLE001 - reported to the caller
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LIMIT_SECONDS)
    assert problems == []
    writer.flush()


def fill(mixed: MixedCluster) -> list[bytes]:
    """Write what takes a while to copy to HEAVY; return the values."""
    producer = confluent_kafka.Producer({"bootstrap.servers": mixed.servers, "enable.idempotence": True})
    values = [os.urandom(RECORD_BYTES) for _ in range(HEAVY_RECORDS)]
    failed: list[str] = []
    for value in values:
        producer.produce(
            HEAVY, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(LIMIT_SECONDS) == 0
    assert failed == []
    return values


def move(mixed: MixedCluster, target: Sequence[int], file: Path) -> float:
    """Move all partitions to these brokers and wait until it is over; return the seconds from its start."""
    placed = [{"topic": MOVED, "partition": at, "replicas": [*target[at:], *target[:at]]} for at in range(PARTITIONS)]
    placed.append({"topic": HEAVY, "partition": 0, "replicas": list(target)})
    file.write_text(json.dumps({"version": 1, "partitions": placed}))
    begin = time.monotonic()
    words = ("ReassignPartitionsCommand", "--reassignment-json-file", str(file))
    assert "Successfully started" in mixed.tool(*words, "--execute", "--throttle", str(THROTTLE_BYTES))

    def is_over() -> bool:
        known = [mixed.assignment(topic) for topic in (MOVED, HEAVY)]
        return not any(one["adding_replicas"] or one["removing_replicas"] for one in known)

    until(is_over, LIMIT_SECONDS, f"all is moved to {target}")
    seconds = time.monotonic() - begin
    verified = mixed.tool(*words, "--verify")
    for one in placed:
        assert f"Reassignment of partition {one['topic']}-{one['partition']} is completed." in verified
    assert "Clearing topic-level throttles" in verified
    return seconds


def wait_moved(mixed: MixedCluster, target: Sequence[int]) -> None:
    """Wait until these brokers alone have the partitions: in metadata, in sync, and on their disks."""

    def has_moved() -> bool:
        found = [one for topic in (MOVED, HEAVY) for one in mixed.partitions(topic).values()]
        return len(found) == PARTITIONS + 1 and all(
            set(one.replicas) == set(one.isrs) == set(target) and one.leader in target for one in found
        )

    until(has_moved, LIMIT_SECONDS, f"metadata has {target}")
    until(lambda: holders(mixed) == set(target), LIMIT_SECONDS, f"the directories are those of {target}")


def holders(mixed: MixedCluster) -> set[int]:
    """Return the brokers with a partition's directory, not marked for deletion."""
    return {
        broker_id
        for broker_id in mixed.ids
        for directory in layout.broker_log_directories(mixed.cluster.directory, broker_id)
        for topic in (MOVED, HEAVY)
        for found in directory.glob(f"{topic}-*")
        if not found.name.endswith("-delete")
    }


def test_partitions_move_between_the_kinds_under_load_by_a_controller_of_either(
    mixed: MixedCluster, tmp_path: Path
) -> None:
    """acks=all through four moves: nothing is lost, nothing is there twice; a throttled copy takes its time."""
    mixed.create_topic(MOVED, [[2, 3], [3, 2]], **{"min.insync.replicas": "2"})
    mixed.create_topic(HEAVY, [[2, 3]])
    values = fill(mixed)
    writer = Writer(mixed.servers, "writer", tmp_path / "history")
    for controller in (TIDEGAUGES[0], KAFKAS[0]):
        mixed.make_controller(controller)
        for target in (TIDEGAUGES, KAFKAS):
            before = len(writer.acknowledged[MOVED, 0])
            with load(writer):
                seconds = move(mixed, target, tmp_path / "move.json")
                wait_moved(mixed, target)
                until(lambda: len(writer.acknowledged[MOVED, 0]) > before + 100, LIMIT_SECONDS, "it goes on")  # noqa: B023
            print(f"controller {controller}, to {target}: {seconds:.1f} s")
            assert mixed.controller() == controller
            assert seconds > THROTTLED_SECONDS, "the throttle has an effect"
            mixed.tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
            until(lambda: [mixed.leader(MOVED, at) for at in range(PARTITIONS)] == list(target), LIMIT_SECONDS)  # noqa: B023
    positions = [Position(MOVED, 0, 0), Position(MOVED, 1, 0), Position(HEAVY, 0, 0)]
    found = read_all(mixed.servers, positions, committed=False)
    kept = {at: {offset: record.value for offset, record in records.items()} for at, records in found.items()}
    assert list(kept.pop((HEAVY, 0)).values()) == values
    assert kept == dict(writer.acknowledged)
    assert mixed.unexpected() == []
