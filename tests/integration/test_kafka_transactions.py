"""Transactions of an unmodified Kafka client (librdkafka): commit, abort, fencing, timeout, exactly once (KIP-98)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until, until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import partition_of
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration.copiers import Cell, Copiers  # noqa: E402 - needs the package

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
LIMIT_SECONDS = 60.0
CONFLUENT = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
COPIED = 400
PER_TRANSACTION = 20


def create(cluster: LocalCluster, *names: str) -> None:
    """Topics of one partition on all brokers."""

    async def make() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            for name in names:
                configs = {"min.insync.replicas": "2"}
                await admin.create_topic(name, partitions=1, replication_factor=3, configs=configs)

    with ThreadPoolExecutor(1) as pool:  # its own thread, so its own event loop
        pool.submit(asyncio.run, make()).result()


@pytest.fixture
def topic(brokers: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic whose name is the test's."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    create(brokers, name)
    return name


def servers(cluster: LocalCluster) -> str:
    return ",".join(cluster.kafka_bootstrap_servers)


def producer_of(cluster: LocalCluster, transactional_id: str, timeout_ms: int = 30_000) -> Any:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers(cluster),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 2,
        }
    )
    producer.init_transactions(LIMIT_SECONDS)
    return producer


def consumer_of(cluster: LocalCluster, group: str, isolation_level: str = "read_committed") -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers(cluster),
            "group.id": group,
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "log_level": 2,
        }
    )


@contextlib.contextmanager
def reading(cluster: LocalCluster, topic: str, isolation_level: str = "read_committed") -> Iterator[Callable[[], bool]]:
    """Yield a function that reads on to the end at an isolation level; its ``values`` grow."""
    consumer = consumer_of(cluster, "unused", isolation_level)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    values: list[bytes] = []

    def at_the_end() -> bool:
        ended = False
        for message in consumer.consume(1_000, timeout=0.3):
            if message.error() is None:
                values.append(message.value())
            else:
                ended = True
        return ended

    at_the_end.values = values  # type: ignore[attr-defined]
    try:
        yield at_the_end
    finally:
        consumer.close()


def read(cluster: LocalCluster, topic: str, isolation_level: str = "read_committed", count: int = 0) -> list[bytes]:
    """Read everything, and at least ``count`` records."""
    with reading(cluster, topic, isolation_level) as at_the_end:
        values: list[bytes] = at_the_end.values  # type: ignore[attr-defined]
        until(lambda: at_the_end() and len(values) >= count, what="the topic is read", timeout=LIMIT_SECONDS)
        return values


@pytest.mark.kafka_client(
    "transactional producer: commit, abort, offsets in the transaction; consumer by isolation level",
    client="Python: confluent-kafka",
    version=CONFLUENT,
)
def test_a_reader_of_committed_data_sees_whole_transactions_only(brokers: LocalCluster, topic: str) -> None:
    """Committed records appear, aborted ones do not; an open transaction holds them back."""
    producer = producer_of(brokers, topic)
    for number, end in enumerate(
        [producer.commit_transaction, producer.abort_transaction, producer.commit_transaction]
    ):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d-%d" % (number, part))
        producer.flush(LIMIT_SECONDS)
        end(LIMIT_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(LIMIT_SECONDS)
    whole = [b"%d-%d" % (number, part) for number in (0, 2) for part in range(3)]
    assert read(brokers, topic, count=6) == whole
    everything = read(brokers, topic, "read_uncommitted", count=10)
    assert everything == [b"%d-%d" % (number, part) for number in range(3) for part in range(3)] + [b"open"]
    producer.abort_transaction(LIMIT_SECONDS)


def test_a_newer_producer_of_the_same_id_fences_the_older(brokers: LocalCluster, topic: str) -> None:
    """InitProducerId aborts the open transaction and raises the epoch; the older producer can do nothing any more."""
    older = producer_of(brokers, topic)
    older.begin_transaction()
    older.produce(topic, b"of the older")
    older.flush(LIMIT_SECONDS)
    newer = producer_of(brokers, topic)
    newer.begin_transaction()
    newer.produce(topic, b"of the newer")
    newer.commit_transaction(LIMIT_SECONDS)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        older.commit_transaction(LIMIT_SECONDS)
    assert refused.value.args[0].fatal()
    assert refused.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    assert read(brokers, topic, count=1) == [b"of the newer"]


def test_a_transaction_that_exceeds_its_timeout_is_aborted(brokers: LocalCluster, topic: str) -> None:
    """TransactionCoordinator.abortTimedOutTransactions: records held back behind it become readable."""
    silent = producer_of(brokers, topic, timeout_ms=1_500)
    silent.begin_transaction()
    silent.produce(topic, b"never committed")
    silent.flush(LIMIT_SECONDS)
    plain = confluent_kafka.Producer({"bootstrap.servers": servers(brokers)})
    plain.produce(topic, b"behind it")
    assert plain.flush(LIMIT_SECONDS) == 0
    assert read(brokers, topic, count=1) == [b"behind it"]
    with pytest.raises(confluent_kafka.KafkaException):
        silent.commit_transaction(LIMIT_SECONDS)


# Exactly once: from consume to produce


class Copier:
    """Copies a topic in transactions, with the offsets of its group; a third of them it aborts (KIP-447)."""

    def __init__(self, cluster: LocalCluster, source: str, target: str) -> None:
        self._cluster = cluster
        self._source, self._target = source, target
        self._consumer = consumer_of(cluster, f"copier-of-{source}")
        self._consumer.subscribe([source])
        self._producer = producer_of(cluster, f"copier-of-{source}")
        self.copied = 0
        self._transactions = 0

    def run(self) -> None:
        """Copy everything."""
        while self.copied < COPIED:
            messages = [one for one in self._consumer.consume(PER_TRANSACTION, timeout=1.0) if one.error() is None]
            if messages:
                self._copy(messages)
        self._consumer.close()

    def _copy(self, messages: list[Any]) -> None:
        self._transactions += 1
        try:
            self._producer.begin_transaction()
            for message in messages:
                self._producer.produce(self._target, message.value())
            ends = [confluent_kafka.TopicPartition(self._source, 0, messages[-1].offset() + 1)]
            self._retried(
                lambda: self._producer.send_offsets_to_transaction(
                    ends, self._consumer.consumer_group_metadata(), LIMIT_SECONDS
                )
            )
            if self._transactions % 3 == 0:
                self._producer.flush(LIMIT_SECONDS)
                self._begin_again()
                return
            self._retried(lambda: self._producer.commit_transaction(LIMIT_SECONDS))
        except confluent_kafka.KafkaException as problem:
            if problem.args[0].fatal():
                self._producer = producer_of(self._cluster, f"copier-of-{self._source}")
                self._rewind()
            else:
                self._begin_again()
        else:
            self.copied = messages[-1].offset() + 1

    @staticmethod
    def _retried(call: Callable[[], None]) -> None:
        while True:
            try:
                return call()
            except confluent_kafka.KafkaException as problem:
                if not problem.args[0].retriable():
                    raise

    def _begin_again(self) -> None:
        self._retried(lambda: self._producer.abort_transaction(LIMIT_SECONDS))
        self._rewind()

    def _rewind(self) -> None:
        """Read on from the committed offset; another transaction may have been, though its response was lost."""
        at = [confluent_kafka.TopicPartition(self._source, 0)]
        [committed] = self._consumer.committed(at, LIMIT_SECONDS)
        self.copied = max(0, committed.offset)
        self._consumer.seek(confluent_kafka.TopicPartition(self._source, 0, self.copied))


def copied_exactly_once(cluster: LocalCluster, name: str, fault: Callable[[str, str], None]) -> None:
    """Copy a topic while a fault happens; the copy has each record once, in order."""
    source, target = f"{name}-in", f"{name}-out"
    create(cluster, source, target)
    values = [b"%05d" % number for number in range(COPIED)]
    plain = confluent_kafka.Producer({"bootstrap.servers": servers(cluster), "enable.idempotence": True})
    for value in values:
        plain.produce(source, value)
    assert plain.flush(LIMIT_SECONDS) == 0
    copier = Copier(cluster, source, target)
    problems: list[BaseException] = []

    def run() -> None:
        try:
            copier.run()
        except BaseException as problem:  # noqa: BLE001 - reported by the test
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: copier.copied >= COPIED // 6 or problems, what="the copier is at work", timeout=LIMIT_SECONDS)
    fault(f"copier-of-{source}", target)
    thread.join(150)
    assert not thread.is_alive(), f"copied {copier.copied} records only"
    assert problems == []
    assert read(cluster, target, count=COPIED) == values


def bounced(cluster: LocalCluster, topic: str, partition: int) -> None:
    """Kill the leader of a partition, and start it again when another leads."""
    old = cluster.leader_of(topic, partition)

    def led_by_another() -> bool:
        with contextlib.suppress(TidegaugeError):  # there is none at the moment
            return cluster.leader_of(topic, partition) != old
        return False

    cluster.kill(old, expire=True)
    until(led_by_another, what="another broker leads", timeout=LIMIT_SECONDS)
    cluster.start(old)
    cluster.wait_ready(LIMIT_SECONDS)


def coordinator_partition(transactional_id: str) -> int:
    return partition_of(transactional_id, 10)


@pytest.mark.kafka_client(
    "copiers from consume to produce (KIP-447), a third aborted, killed and stopped at work",
    client="Python: confluent-kafka",
    version=CONFLUENT,
)
@pytest.mark.parametrize(
    "cell",
    [
        Cell(clean=False, brokers=False, ordered=True, grouped=False),
        Cell(clean=True, brokers=False, ordered=True, grouped=True),
    ],
    ids=str,
)
def test_copiers_that_are_bounced_copy_each_record_once(brokers: LocalCluster, cell: Cell, tmp_path: Path) -> None:
    """A new producer of the id ends the transaction of the one before it (KIP-98), and goes on from its offsets.

    Two cells of Kafka's transactions_test; all of them: test_transaction_matrix.py.
    """
    copiers = Copiers(brokers, cell, ("confluent", "confluent"), tmp_path, size=20)
    copiers.write(100)
    with copiers.running():
        until(lambda: copiers.transactions() >= 2, LIMIT_SECONDS, "copiers are at work")
        copiers.bounce(0)
        copiers.finish()
    copiers.check()


@pytest.mark.long
@pytest.mark.kafka_client(
    "copier from consume to produce (KIP-447), a third aborted, through a killed transaction coordinator",
    client="Python: confluent-kafka",
    version=CONFLUENT,
)
def test_a_copier_is_exactly_once_through_a_killed_coordinator(brokers: LocalCluster) -> None:
    """Of Kafka's transactions_test, one cell: hard bounce of the coordinator, group metadata, order checked."""

    def fault(transactional_id: str, _: str) -> None:
        bounced(brokers, TRANSACTION_TOPIC, coordinator_partition(transactional_id))

    copied_exactly_once(brokers, "coordinator", fault)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [3])
def test_a_copier_is_exactly_once_through_all_brokers_killed_in_turn(brokers: LocalCluster, rounds: int) -> None:
    """Of Kafka's transactions_test, one cell: hard bounce of each broker, leaders of data and coordinators alike."""

    def fault(transactional_id: str, target: str) -> None:
        for _ in range(rounds):
            bounced(brokers, target, 0)
            bounced(brokers, TRANSACTION_TOPIC, coordinator_partition(transactional_id))

    copied_exactly_once(brokers, "everything", fault)


# Tidegauge's own client, over gRPC


async def read_over_grpc(cluster: LocalCluster, topic: str, count: int) -> list[bytes | None]:
    """Return the own consumer's committed records, at least ``count``."""
    at = TopicPartition(topic, 0)
    async with Consumer(
        cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([at])
        await consumer.seek_to_end([at])
        end = await consumer.position(at)
        await consumer.seek_to_beginning([at])
        found: list[bytes | None] = []

        async def all_read() -> bool:
            found.extend(record.value for record in await consumer.poll(200))
            return await consumer.position(at) >= end and len(found) >= count

        await until_async(all_read, what="the topic is read")
        return found


async def test_the_own_client_writes_and_reads_transactions_as_a_kafka_client_does(
    brokers: LocalCluster, topic: str
) -> None:
    """Commit, abort, an abort of unacknowledged records, offsets in the transaction; both wires read the same."""
    at = TopicPartition(topic, 0)
    async with (
        Producer(brokers.bootstrap_servers, transactional_id=f"own-{topic}") as producer,
        Admin(brokers.bootstrap_servers) as admin,
    ):
        await producer.init_transactions()
        for number in range(4):
            await producer.begin_transaction()
            for part in range(3):
                await producer.send(topic, b"%d-%d" % (number, part))
            if number == 0:
                group = GroupMetadata(f"group-of-{topic}", -1, "", None)
                await producer.send_offsets_to_transaction({at: OffsetAndMetadata(7)}, group)
            if number == 1:
                await producer.flush()
            if number % 2:
                await producer.abort_transaction()  # of the last one nothing may have been sent
            else:
                await producer.commit_transaction()
        whole = [b"%d-%d" % (number, part) for number in (0, 2) for part in range(3)]
        assert await read_over_grpc(brokers, topic, 6) == whole
        assert await asyncio.to_thread(read, brokers, topic, "read_committed", 6) == whole

        async def committed() -> bool:
            offsets = await admin.committed_offsets(f"group-of-{topic}")
            return at in offsets and offsets[at].offset == 7

        await until_async(committed, what="the offsets of the transaction count")
        await producer.begin_transaction()
        await producer.send(topic, b"open")
        await producer.flush()
        listed = {one.transactional_id: one.state for one in await admin.list_transactions(["Ongoing"])}
        assert listed[f"own-{topic}"] == "Ongoing"
        described = await admin.describe_transaction(f"own-{topic}")
        assert (described.state, described.partitions) == ("Ongoing", (at,))
        [known] = await admin.describe_producers(at)
        assert known.producer_id == described.producer_id
        assert known.transaction_start_offset is not None
        await admin.abort_transaction(at, known.transaction_start_offset)
        [known] = await admin.describe_producers(at)
        assert known.transaction_start_offset is None
        await producer.abort_transaction()


async def test_a_newer_own_producer_fences_the_older(brokers: LocalCluster, topic: str) -> None:
    async with (
        Producer(brokers.bootstrap_servers, transactional_id=f"own-{topic}") as older,
        Producer(brokers.bootstrap_servers, transactional_id=f"own-{topic}") as newer,
    ):
        await older.init_transactions()
        await older.begin_transaction()
        await older.send(topic, b"of the older")
        await older.flush()
        await newer.init_transactions()
        await newer.begin_transaction()
        await newer.send(topic, b"of the newer")
        await newer.commit_transaction()
        with pytest.raises(TidegaugeError) as refused:
            await older.commit_transaction()
        assert refused.value.code is ErrorCode.PRODUCER_FENCED
        with pytest.raises(TidegaugeError) as again:
            await older.begin_transaction()
        assert again.value.code is ErrorCode.PRODUCER_FENCED
    assert await read_over_grpc(brokers, topic, 1) == [b"of the newer"]
