"""Data that Apache Kafka 3.9.1 wrote moments ago are served by Tidegauge as Kafka served them, byte for byte.

One broker of Kafka takes records of all codecs, transactions that end each way and one that does not, offsets and a
member that stays; it is asked for everything, stopped or killed, and a Tidegauge broker is started in its place and
asked the same. Needs the jars that the benchmark keeps, or Maven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import MakeCluster
from tests.integration.served_files import READ_COMMITTED, ServingBroker

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.apache_kafka import KafkaSide, Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
LIMIT_SECONDS = 60.0
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
}
TOPICS = {
    "codecs": {"segment.bytes": "6000", "index.interval.bytes": "300"},
    "compressed": {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"},
    "deals": {"segment.bytes": "4000", "index.interval.bytes": "300"},
}
PARTITIONS = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONAL_IDS = ("commits", "aborts", "open")
GROUPS = ("simple", "by-transactions", "stays", "left")
INTERNAL = ("__consumer_offsets", "__transaction_state")
ALL = [TopicPartition(topic, part) for topic in (*TOPICS, *INTERNAL) for part in range(PARTITIONS)]


def write_records(servers: str) -> None:
    """Plain and idempotent producers with each codec; keys, headers, tombstones, empty values."""
    for codec in CODECS:
        for idempotent in (False, True):
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": servers,
                    "compression.type": codec,
                    "enable.idempotence": idempotent,
                    "linger.ms": 20,
                }
            )
            for topic in ("codecs", "compressed"):
                for number in range(60):
                    value = None if number % 11 == 0 else b"" if number % 13 == 0 else b"value %d" % number * 7
                    headers = [("h", b"%d" % number), ("none", None)][: number % 3]
                    producer.produce(topic, value, b"k%d" % (number % 7), number % PARTITIONS, headers=headers)
            assert producer.flush(LIMIT_SECONDS) == 0


def transactions(servers: str) -> None:
    """End transactions each way, with offsets of a group; leave one open."""
    for ends in ("commits", "aborts"):
        producer = transactional(servers, ends)
        for turn in range(20):
            producer.begin_transaction()
            for part in range(PARTITIONS):
                producer.produce("deals", b"%s %d" % (ends.encode(), turn), b"k", part)
            consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "by-transactions"})
            positions = [confluent_kafka.TopicPartition("codecs", 0, turn + (0 if ends == "commits" else 100))]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), LIMIT_SECONDS)
            consumer.close()
            (producer.commit_transaction if ends == "commits" else producer.abort_transaction)(LIMIT_SECONDS)
    producer = transactional(servers, "open")
    producer.begin_transaction()
    producer.produce("deals", b"not yet", b"k", 0)
    assert producer.flush(LIMIT_SECONDS) == 0


def transactional(servers: str, transactional_id: str) -> Any:
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(LIMIT_SECONDS)
    return producer


def groups(servers: str) -> None:
    """Commit offsets without a group's members, with one that leaves, and with a static one that does not leave."""
    base = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    simple = confluent_kafka.Consumer(base | {"group.id": "simple"})
    at = confluent_kafka.TopicPartition("codecs", 1, 17, "where I was")
    simple.commit(offsets=[at], asynchronous=False)
    simple.close()
    static = {"group.instance.id": "one", "session.timeout.ms": 600_000, "max.poll.interval.ms": 900_000}
    for name, more in (("left", {}), ("stays", static)):
        member = confluent_kafka.Consumer(base | {"group.id": name} | more)
        member.subscribe(["codecs"])
        records = member.consume(50, LIMIT_SECONDS)
        assert len(records) == 50
        member.commit(asynchronous=False)
        member.close()


def everything(serving: ServingBroker) -> dict[str, Any]:
    """Return a broker's responses: each one's content under a name of its own."""
    found: dict[str, Any] = {}
    for at in ALL:
        for isolation in (0, READ_COMMITTED):
            found[f"{at} isolation {isolation}"] = serving.log(at, isolation=isolation)
            found[f"{at} end {isolation}"] = serving.offset(at, -1, isolation=isolation)
        found[f"{at} in batches"] = serving.log(at, max_bytes=1).records
        found[f"{at} by time"] = [serving.offset(at, time_ms) for time_ms in times_of(found[f"{at} in batches"])]
        found[f"{at} producers"] = serving.producers(at)
    found["groups"] = serving.groups()
    for name in GROUPS:
        found[f"group {name}"] = serving.group(name)
        found[f"offsets of {name}"] = serving.committed(name)
    found["transactions"] = serving.transactions()
    for name in TRANSACTIONAL_IDS:
        found[f"transaction {name}"] = serving.transaction(name)
    return found


def times_of(records: bytes) -> list[int]:
    """Return times around the batches', and the ends."""
    times = {max(0, header.max_timestamp_ms + more) for header in iterate_headers(records) for more in (-1, 0, 1)}
    return [-3, -2, *sorted(times)[:: max(1, len(times) // 20)]]


@pytest.fixture
def cluster(make_cluster: MakeCluster, next_base_port: Callable[[], int]) -> LocalCluster:
    """A cluster that is down: its only broker is Kafka's first."""
    return make_cluster(up=False, brokers=1, kafka_port=next_base_port(), settings=SETTINGS)


@pytest.fixture
def kafka(cluster: LocalCluster, tmp_path: Path) -> Iterator[KafkaSide]:
    try:
        side = KafkaSide(cluster, tmp_path / "kafka")
    except Unavailable as problem:
        pytest.skip(f"Apache Kafka can't be had here: {problem}")
    side.start()
    yield side
    side.kill()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_all_that_kafka_served_is_served_the_same(cluster: LocalCluster, kafka: KafkaSide, *, clean: bool) -> None:
    entry = cluster.file.broker(0)
    assert entry.kafka_port is not None
    serving = ServingBroker(entry.kafka_port)
    serving.wait_known()
    servers = ",".join(cluster.kafka_bootstrap_servers)
    new = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(new).values():
        future.result(LIMIT_SECONDS)
    write_records(servers)
    transactions(servers)
    groups(servers)
    kafkas = everything(serving)
    assert kafkas["group stays"].group_state == "Stable"
    assert kafkas["transaction open"].transaction_state == "Ongoing"
    (kafka.stop if clean else kafka.kill)()
    [data] = layout.broker_log_directories(cluster.directory, 0)
    files = {path: path.read_bytes() for path in sorted(data.glob("*-?/*.log"))}

    cluster.up()
    ours = everything(serving)
    for name, theirs in kafkas.items():
        assert ours[name] == theirs, name
    assert {path: path.read_bytes() for path in files} == files, "no byte of Kafka's segments has changed"
    assert len([path for path in files if path.parent.name == "codecs-0"]) > 1
