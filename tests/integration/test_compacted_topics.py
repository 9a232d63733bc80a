"""Compacted topics as clients of other makers read them: each record that is left, from wherever they begin.

The topic has segments of two batches, of which compaction leaves most without a record, and at its begin the last batch
of an idempotent producer, which stays without its record and fills a segment of its own (Cleaner.cleanInto).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests import kafka_requests
from tests.clients import programs
from tests.clients.programs import Program, Unavailable, filled
from tests.clients.runs import Child
from tests.waiting import until, until_async

from tidegauge.kafka import apis
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.formats.records import decode_records
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
SETTINGS = {"log.cleaner.backoff.ms": "100"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0.01"}
LIMIT_SECONDS = 90.0
DUPLICATES, OTHERS = 119, 6
"""Records of one key before its last, which shares a segment with one of the others: too large to be merged."""
LEFT = list(range(DUPLICATES, DUPLICATES + 1 + OTHERS))
END = LEFT[-1] + 1
TIME_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago: a log forgets producers whose batches are older than producer.id.expiration.ms."""
MAKERS: dict[str, Callable[[], Program]] = {
    "franz-go": lambda: programs.go_client("franz"),
    "kafka-go": lambda: programs.go_client("kafka-go"),
    "sarama": lambda: programs.go_client("sarama"),
    "rskafka": lambda: programs.rust_client("rskafka"),
    "kafkajs": programs.kafkajs,
}
PARAMS = [pytest.param(name, marks=[] if name == "kafkajs" else [pytest.mark.long]) for name in MAKERS]
"""To build the programs in Go and Rust takes minutes."""


def servers(cluster: LocalCluster) -> str:
    return ",".join(cluster.kafka_bootstrap_servers)


def write(cluster: LocalCluster, topic: str, pairs: list[tuple[str, str, int]], *, idempotent: bool = False) -> None:
    """Send records, key and value and how much later than TIME_MS, each in a batch of its own."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers(cluster), "linger.ms": 0, "enable.idempotence": idempotent}
    )
    failed: list[object] = []
    for key, value, later_ms in pairs:
        producer.produce(
            topic,
            key=key,
            value=value,
            partition=0,
            timestamp=TIME_MS + later_ms,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert (producer.flush(LIMIT_SECONDS), failed) == (0, [])


def batches(cluster: LocalCluster, at: TopicPartition, offset: int) -> list[tuple[int, list[int]]]:
    """Return the batches of one Fetch: last offset, and the records' offsets."""
    wanted = FetchPartition(partition=at.partition, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchTopic(at.topic, partitions=[wanted])]
    )
    response = kafka_requests.ask(cluster.kafka_bootstrap_servers[0], apis.FETCH, request, 12)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == 0
    data = bytes(partition.records or b"")
    return [
        (
            one.last_offset,
            [record.offset for record in decode_records(data[one.position : one.position + one.size_bytes])],
        )
        for one in iterate_headers(data)
    ]


def offsets_left(cluster: LocalCluster, at: TopicPartition) -> list[int]:
    found: list[int] = []
    offset = 0
    while given := batches(cluster, at, offset):
        found += [one for _, offsets in given for one in offsets]
        offset = given[-1][0] + 1
    return found


@pytest.fixture(scope="module")
def compacted(brokers: LocalCluster) -> TopicPartition:
    """A compacted topic of which the records of LEFT are left, broker 0 its leader."""
    at = TopicPartition("compacted", 0)
    topic = NewTopic(at.topic, 1, replica_assignment=[[0, 1, 2]], config=COMPACTED)
    admin = AdminClient({"bootstrap.servers": servers(brokers)})
    (future,) = admin.create_topics([topic]).values()
    future.result(LIMIT_SECONDS)
    write(brokers, at.topic, [("dup", "first" * 22, 90)], idempotent=True)
    write(brokers, at.topic, [("dup", f"{number:04d}", 5) for number in range(1, DUPLICATES)])
    write(brokers, at.topic, [("dup", "last", 6)])
    write(brokers, at.topic, [(f"e{number}", f"{number:04d}", 4) for number in range(OTHERS)])
    until(lambda: offsets_left(brokers, at) == LEFT, LIMIT_SECONDS, what="compacted")
    return at


def test_no_response_lacks_records_if_some_follow(brokers: LocalCluster, compacted: TopicPartition) -> None:
    """The batch of a producer's sequence is given with the next that has a record, whatever the limit."""
    assert batches(brokers, compacted, 0)[0] == (0, [])
    for offset in range(END):
        assert any(offsets for _, offsets in batches(brokers, compacted, offset)), f"from {offset} on"
    assert batches(brokers, compacted, END) == []


def test_librdkafka_reads_a_compacted_topic_without_an_error(brokers: LocalCluster, compacted: TopicPartition) -> None:
    """It reports MSG_SIZE_TOO_LARGE for a response that holds batches without records alone."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers(brokers), "group.id": "unused", "enable.auto.commit": False}
    )
    for start in (0, 1, 60):
        consumer.assign([confluent_kafka.TopicPartition(compacted.topic, 0, start)])
        found = []
        while len(found) < len(LEFT):
            message = consumer.poll(LIMIT_SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message.offset())
        assert found == LEFT
    consumer.close()


async def test_aiokafka_reads_a_compacted_topic(brokers: LocalCluster, compacted: TopicPartition) -> None:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers(brokers), enable_auto_commit=False)
    await consumer.start()
    try:
        of_client = aiokafka.TopicPartition(compacted.topic, 0)
        consumer.assign([of_client])
        consumer.seek(of_client, 0)
        assert [(await consumer.getone()).offset for _ in LEFT] == LEFT
    finally:
        await consumer.stop()


@pytest.mark.parametrize("name", PARAMS)
def test_a_program_reads_a_compacted_topic_to_its_end(
    brokers: LocalCluster, compacted: TopicPartition, tmp_path: Path, name: str
) -> None:
    """Clients of other languages, some of which keep to the offset of the last record that they saw."""
    try:
        program = MAKERS[name]()
    except Unavailable as problem:
        pytest.skip(f"{name} can't be had here: {problem}")
    words = {"servers": servers(brokers), "topic": compacted.topic, "count": len(LEFT), "group": f"of-{tmp_path.name}"}
    consumer = Child(
        filled(program.consume_group or program.consume, **words), program.environment, tmp_path / "consumer.log"
    )
    try:
        found = consumer.end()
    finally:
        consumer.kill()
    assert [int(line.split()[0]) for line in found] == LEFT


def test_searches_by_time_find_what_compaction_has_left(brokers: LocalCluster, compacted: TopicPartition) -> None:
    """ListOffsets: the record with the largest time was replaced; the next one belongs to a kept record."""
    admin = AdminClient({"bootstrap.servers": servers(brokers)})
    at = confluent_kafka.TopicPartition(compacted.topic, 0)

    def found(specification: OffsetSpec) -> tuple[int, int]:
        (future,) = admin.list_offsets({at: specification}).values()
        result = future.result(LIMIT_SECONDS)
        return result.offset, result.timestamp

    assert found(OffsetSpec.max_timestamp()) == (DUPLICATES, TIME_MS + 6)
    for later_ms in (0, 5, 6):
        assert found(OffsetSpec.for_timestamp(TIME_MS + later_ms)) == (DUPLICATES, TIME_MS + 6)
    assert found(OffsetSpec.for_timestamp(TIME_MS + 7))[0] == -1
    assert found(OffsetSpec.for_timestamp(TIME_MS + 90))[0] == -1


async def test_a_follower_with_an_empty_disk_reaches_the_end_of_a_compacted_log(
    brokers: LocalCluster, compacted: TopicPartition, lab: Switches
) -> None:
    """KAFKA-17076; then it serves the records as the new leader."""
    brokers.kill(2, expire=True)
    for directory in brokers.directory.rglob(str(compacted)):
        if "broker-2" in str(directory):
            shutil.rmtree(directory)
    brokers.up(LIMIT_SECONDS)

    async def is_in_sync() -> bool:
        seen = (await lab.observe(0, [compacted.topic]))[compacted]
        return sorted(seen.isr) == [0, 1, 2]

    await until_async(is_in_sync, limit=LIMIT_SECONDS, what="all are in sync")
    seen = (await lab.observe(2, [compacted.topic]))[compacted]
    assert seen.log_end_offset == END
