"""Mixed clusters: Tidegauge and Apache Kafka brokers on one ZooKeeper, each in every role (docs/mixed-clusters.md).

One broker of Apache Kafka and two of Tidegauge, and two and one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.waiting import until

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

import confluent_kafka
from confluent_kafka import TopicPartition as Position
from tests.integration.administered import ROUND
from tests.integration.mixed_cluster import MixedCluster
from tests.integration.swap_clients import LIMIT_SECONDS, Writer, consumer_of, read_all, retried

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]


def written(writer: Writer, topic: str, rounds: int) -> None:
    """Write to all partitions of a topic, and wait for the acknowledgements."""
    for _ in range(rounds):
        for partition in range(len(ROUND)):
            writer.send(topic, partition, b"k")
    writer.flush()


def check(mixed: MixedCluster, writer: Writer, topic: str) -> None:
    """Check that every acknowledged record is at its offset, and there is no other."""
    positions = [Position(topic, partition, 0) for partition in range(len(ROUND))]
    found = read_all(mixed.servers, positions, committed=False)
    values = {at: {offset: record.value for offset, record in records.items()} for at, records in found.items()}
    assert values == dict(writer.acknowledged)


def test_each_leads_follows_dies_and_returns(mixed: MixedCluster, tmp_path: Path) -> None:
    """acks=all through kill -9 and return of each: others copy from it, lead in its place, and it catches up."""
    mixed.create_topic("led", ROUND, **{"min.insync.replicas": "2"})
    writer = Writer(mixed.servers, "writer", tmp_path / "history", **{"compression.type": "zstd"})
    until(lambda: [mixed.leader("led", at) for at in range(3)] == [0, 1, 2], LIMIT_SECONDS, "each leads")
    written(writer, "led", 100)
    for broker_id in mixed.ids:
        mixed.kill(broker_id)
        until(lambda: mixed.leader("led", broker_id) not in {-1, broker_id}, LIMIT_SECONDS, "another leads")  # noqa: B023
        writer.refresh("led")
        written(writer, "led", 50)
        mixed.start(broker_id)
        mixed.wait_in_sync("led")
        writer.refresh("led")
        written(writer, "led", 50)
    check(mixed, writer, "led")


def test_each_is_the_controller(mixed: MixedCluster, tmp_path: Path) -> None:
    """It makes topics, elects when another stops, takes the ISR's growth, elects preferred leaders, deletes topics."""
    for broker_id in mixed.ids:
        mixed.make_controller(broker_id)
        topic = f"of-{broker_id}"
        mixed.create_topic(topic, ROUND, **{"min.insync.replicas": "2"})
        writer = Writer(mixed.servers, f"writer-{broker_id}", tmp_path / "history")
        written(writer, topic, 20)
        other = (broker_id + 1) % 3
        mixed.stop(other)
        until(lambda: mixed.leader(topic, other) not in {-1, other}, LIMIT_SECONDS, "another leads")  # noqa: B023
        writer.refresh(topic)
        written(writer, topic, 20)
        mixed.start(other)
        mixed.wait_in_sync(topic)
        assert mixed.controller() == broker_id
        elect = ("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", str(other))
        assert f"completed leader election (PREFERRED) for partitions {topic}-{other}" in mixed.tool(*elect)
        until(lambda: mixed.leader(topic, other) == other, LIMIT_SECONDS, "the preferred leader leads")  # noqa: B023
        assert f"Valid replica already elected for partitions {topic}-{other}" in mixed.tool(*elect)
        writer.refresh(topic)
        written(writer, topic, 20)
        check(mixed, writer, topic)
        mixed.delete_topic(topic)
    assert mixed.unexpected() == []


def test_each_coordinates_groups_and_transactions(mixed: MixedCluster, tmp_path: Path) -> None:
    """Commits and transactions by coordinators of both kinds, which all are killed: acknowledged ones stay."""
    mixed.create_topic("data", ROUND, **{"min.insync.replicas": "2"})
    plain = Writer(mixed.servers, "plain", tmp_path / "history")
    written(plain, "data", 10)
    committed = {at: set(offsets) for at, offsets in plain.acknowledged.items()}
    for turn in range(6):
        name = f"id-{turn}"
        settings = {"transactional.id": name, "transaction.timeout.ms": 60_000}
        writer = Writer(mixed.servers, name, tmp_path / "history", **settings)
        retried(lambda: writer.producer.init_transactions(LIMIT_SECONDS))  # noqa: B023
        writer.begin()
        written(writer, "data", 5)
        writer.finish(commit=True)
        for at, offsets in writer.committed.items():
            committed.setdefault(at, set()).update(offsets)
        writer.begin()
        written(writer, "data", 5)
        writer.finish(commit=False)
        commit_and_look(mixed, f"group-{turn}", turn)
    coordinators = {mixed.leader("__consumer_offsets", partition) for partition in range(9)}
    assert coordinators == set(mixed.ids), "each coordinates some group"
    for broker_id in mixed.ids:
        mixed.kill(broker_id)
        for turn in range(6):
            until(lambda: offset_of(mixed, f"group-{turn}") == turn, LIMIT_SECONDS, "the offset is there")  # noqa: B023
        mixed.start(broker_id)
        for topic in ("data", "__consumer_offsets", "__transaction_state"):
            mixed.wait_in_sync(topic)
    positions = [Position("data", partition, 0) for partition in range(3)]
    found = read_all(mixed.servers, positions, committed=True)
    assert {at: set(records) for at, records in found.items()} == committed


def commit_and_look(mixed: MixedCluster, group: str, offset: int) -> None:
    """Commit an offset for a group, and see it."""
    consumer = consumer_of(mixed.servers, group, committed=True)
    try:
        wanted = [Position("data", 0, offset)]
        retried(lambda: consumer.commit(offsets=wanted, asynchronous=False))
    finally:
        consumer.close()
    assert offset_of(mixed, group) == offset


def offset_of(mixed: MixedCluster, group: str) -> int:
    """Return a group's committed offset; -1 if unknown now."""
    consumer = consumer_of(mixed.servers, group, committed=True)
    try:
        [found] = consumer.committed([Position("data", 0)], 20.0)
    except confluent_kafka.KafkaException:
        return -1
    finally:
        consumer.close()
    return int(found.offset)


def test_each_advertises_another_address_while_it_runs(mixed: MixedCluster, tmp_path: Path) -> None:
    """DynamicListenerConfig of both kinds, whichever kind the controller is; records go on."""
    mixed.create_topic("moved", ROUND)
    writer = Writer(mixed.servers, "writer", tmp_path / "history")
    ports = {broker.id: broker.kafka_port for broker in mixed.cluster.file.brokers}
    for controller in (mixed.ids[0], mixed.ids[-1]):
        mixed.make_controller(controller)
        for broker_id in mixed.ids:
            grpc = "" if mixed.is_kafkas(broker_id) else f",GRPC://{mixed.cluster.file.broker(broker_id).address}"
            mixed.alter(broker_id, "advertised.listeners", f"PLAINTEXT://localhost:{ports[broker_id]}{grpc}")
            mixed.wait_host(broker_id, "localhost")
            writer.refresh("moved")
            written(writer, "moved", 10)
        mixed.wait_in_sync("moved")
        for broker_id in mixed.ids:
            mixed.alter(broker_id, "advertised.listeners", None)
            mixed.wait_host(broker_id, "127.0.0.1")
    check(mixed, writer, "moved")
    assert mixed.unexpected() == []
