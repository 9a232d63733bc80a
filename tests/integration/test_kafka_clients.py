"""Unmodified Kafka clients against a cluster: what they send arrives once, in order, and they live through failovers.

Each client produces while the leader is killed and comes back, and reads everything afterwards. kcat is a program of
the machine; without it its test is skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
pytest.importorskip("kafka", reason="pip install -e '.[dev]' brings kafka-python")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
]
LIMIT_SECONDS = 60.0
KAFKA_PYTHON_CLIENT = Path(__file__).parents[1] / "clients" / "kafka_python_client.py"
RECORDS = 300
CONFLUENT = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic of one partition on all brokers, whose name is the test's."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)

    async def create() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            configs = {"min.insync.replicas": "2"}
            await admin.create_topic(name, partitions=1, replication_factor=3, configs=configs)

    with ThreadPoolExecutor(1) as pool:  # its own thread, so its own event loop
        pool.submit(asyncio.run, create()).result()
    return name


class Failover:
    """Kills the leader when enough records are acknowledged, and starts it again when another leads."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acknowledged = 0
        self._enough = threading.Event()

    def acknowledge(self) -> None:
        """Count a record."""
        self._acknowledged += 1
        if self._acknowledged == RECORDS // 3:
            self._enough.set()

    def run(self) -> tuple[int, int]:
        """The old leader and the new one."""
        assert self._enough.wait(LIMIT_SECONDS), "the client acknowledged nothing"
        old = self._cluster.leader_of(self._topic, 0)
        self._cluster.kill(old, expire=True)
        until(lambda: self._led_by_another(old), what="another broker leads", timeout=LIMIT_SECONDS)
        new = self._cluster.leader_of(self._topic, 0)
        self._cluster.start(old)
        return old, new

    def _led_by_another(self, old: int) -> bool:
        with contextlib.suppress(TidegaugeError):  # there is none at the moment
            return self._cluster.leader_of(self._topic, 0) != old
        return False


def values(count: int = RECORDS) -> list[bytes]:
    return [b"record-%04d" % number for number in range(count)]


def through_a_failover(cluster: LocalCluster, topic: str, produce: Callable[[Failover], None]) -> None:
    """Run a producer while the leader is killed and started again."""
    failover = Failover(cluster, topic)
    with ThreadPoolExecutor(1) as pool:
        killing: Future[tuple[int, int]] = pool.submit(failover.run)
        produce(failover)
        old, new = killing.result(LIMIT_SECONDS)
    assert old != new


@pytest.mark.kafka_client(
    "idempotent producer with zstd, keys and headers through a killed leader; consumer of assigned partitions with CRC "
    "checks; watermarks",
    client="Python: confluent-kafka",
    version=CONFLUENT,
)
def test_confluent_kafka_produces_and_consumes_through_a_killed_leader(cluster: LocalCluster, topic: str) -> None:
    """librdkafka, idempotent and compressed: every record once and in order."""
    servers = ",".join(cluster.kafka_bootstrap_servers)
    problems: list[Any] = []

    def produce(failover: Failover) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "zstd", "linger.ms": 1}
        )

        def delivered(problem: Any, _: Any) -> None:
            problems.append(problem) if problem else failover.acknowledge()

        for value in values():
            producer.produce(topic, value, key=b"k", headers={"h": b"x"}, on_delivery=delivered)
            producer.poll(0.01)
        assert producer.flush(LIMIT_SECONDS) == 0

    through_a_failover(cluster, topic, produce)
    assert problems == []
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[bytes] = []

    def read_all() -> bool:
        for message in consumer.consume(RECORDS, timeout=0.5):
            assert message.error() is None, message.error()
            assert (message.key(), message.headers()) == (b"k", [("h", b"x")])
            found.append(message.value())
        return len(found) >= RECORDS

    until(read_all, what="all records are read", timeout=LIMIT_SECONDS)
    low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=10)
    consumer.close()
    assert found == values()
    assert (low, high) == (0, RECORDS)


@contextlib.contextmanager
def kafka_python(action: str, cluster: LocalCluster, topic: str) -> Iterator[subprocess.Popen[str]]:
    """Run tests/clients/kafka_python_client.py; it is killed if it has not ended when the block ends."""
    servers = ",".join(cluster.kafka_bootstrap_servers)
    command = [sys.executable, "-W", "ignore", str(KAFKA_PYTHON_CLIENT), action, servers, topic, str(RECORDS)]
    with (
        tempfile.TemporaryFile("w+") as log,  # a pipe without a reader would block the client once it is full
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as client,
    ):
        limit = threading.Timer(2 * LIMIT_SECONDS, client.kill)
        limit.start()
        try:
            yield client
            returncode = client.wait(LIMIT_SECONDS)
            log.seek(0)
            assert returncode == 0, log.read()
        finally:
            client.kill()
            limit.cancel()


@pytest.mark.kafka_client(
    "producer with acks=all through a killed leader; consumer of assigned partitions; end offsets",
    client="Python: kafka-python",
    package="kafka-python",
)
def test_kafka_python_produces_and_consumes_through_a_killed_leader(cluster: LocalCluster, topic: str) -> None:
    """In a process of its own: its sockets would otherwise be left to the tests' garbage collector."""

    def produce(failover: Failover) -> None:
        with kafka_python("produce", cluster, topic) as client:
            assert client.stdout is not None
            offsets = []
            for line in client.stdout:
                offsets.append(int(line.removeprefix("acknowledged ")))
                failover.acknowledge()
        assert offsets == list(range(RECORDS))

    through_a_failover(cluster, topic, produce)
    with kafka_python("consume", cluster, topic) as client:
        out, _ = client.communicate(timeout=2 * LIMIT_SECONDS)
    found = json.loads(out)
    assert found["end_offset"] == RECORDS
    assert [value.encode() for value in found["values"]] == values()


@pytest.mark.kafka_client(
    "idempotent producer through a killed leader; consumer of assigned partitions",
    client="Python: aiokafka",
    package="aiokafka",
)
async def test_aiokafka_produces_and_consumes_through_a_killed_leader(cluster: LocalCluster, topic: str) -> None:
    """The oldest versions of all: Produce 7, Fetch 11, Metadata 5."""
    failover = Failover(cluster, topic)
    killing = asyncio.get_running_loop().run_in_executor(None, failover.run)
    servers = ",".join(cluster.kafka_bootstrap_servers)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all") as producer:
        for value in values():
            await asyncio.wait_for(producer.send_and_wait(topic, value, partition=0), LIMIT_SECONDS)
            failover.acknowledge()
    old, new = await killing
    assert old != new
    at = aiokafka.TopicPartition(topic, 0)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", metadata_max_age_ms=5_000
    )
    async with consumer:
        consumer.assign([at])
        await consumer.seek_to_beginning(at)
        found: list[bytes] = []
        while len(found) < RECORDS:
            some = await asyncio.wait_for(consumer.getmany(at, timeout_ms=1_000), LIMIT_SECONDS)
            found += [record.value for record in some.get(at, [])]
    assert found == values()


@pytest.fixture
def kcat() -> str:
    found = shutil.which("kcat")
    if found is None:
        pytest.skip("kcat is not installed")
    return found


def test_kcat_lists_produces_and_consumes(cluster: LocalCluster, topic: str, kcat: str, tmp_path: Path) -> None:
    """librdkafka 1.7 to 2.0, as distributions ship it; through a follower's address, after the leader was killed."""

    def run(arguments: Sequence[str], given: bytes = b"") -> bytes:
        servers = ",".join(cluster.kafka_bootstrap_servers)
        command = [kcat, "-b", servers, *arguments]
        return subprocess.run(command, input=given, capture_output=True, check=True, timeout=LIMIT_SECONDS).stdout

    lines = b"".join(value + b"\n" for value in values())
    run(["-P", "-t", topic, "-X", "acks=all", "-z", "snappy"], lines)
    old = cluster.leader_of(topic, 0)
    cluster.kill(old, expire=True)
    assert run(["-C", "-t", topic, "-o", "beginning", "-e", "-q"]) == lines
    cluster.start(old)
    seen = json.loads(run(["-L", "-J", "-t", topic]))
    assert {broker["id"] for broker in seen["brokers"]} == {0, 1, 2}
    [partition] = seen["topics"][0]["partitions"]
    assert partition["leader"] not in {old, -1}
    assert run(["-Q", "-t", f"{topic}:0:-1"]).decode().split()[-1] == str(RECORDS)


@pytest.mark.parametrize(
    "version",
    [pytest.param("0.9.0", marks=pytest.mark.zookeeper_mode("Kafka 4 has no such requests (KIP-896)")), "0.10.0"],
)
def test_clients_of_older_message_formats_are_served(cluster: LocalCluster, topic: str, version: str) -> None:
    """librdkafka as for a broker of that version: formats 0 and 1 in Produce v1 and v2, Fetch v1 and v2."""
    old = {
        "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
        "api.version.request": False,
        "broker.version.fallback": version,
    }
    codecs = ("none", "gzip", "snappy", "lz4")
    sent = [(codec, f"{number}".encode() * 50) for codec in codecs for number in range(5)]
    for codec in codecs:
        producer = confluent_kafka.Producer(old | {"compression.type": codec, "linger.ms": 5, "acks": "all"})
        for key, value in sent:
            if key == codec:
                producer.produce(topic, value, key=key)
        assert producer.flush(LIMIT_SECONDS) == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": old["bootstrap.servers"]})
    producer.produce(topic, b"new", key=b"new", headers={"h": b"left out"})
    assert producer.flush(LIMIT_SECONDS) == 0
    for settings in (old, {"bootstrap.servers": old["bootstrap.servers"]}):
        consumer = confluent_kafka.Consumer(settings | {"group.id": "unused", "check.crcs": True})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found = []
        while len(found) <= len(sent):
            [message] = consumer.consume(1, LIMIT_SECONDS)
            assert message.error() is None
            found.append((message.key().decode(), message.value()))
        consumer.close()
        assert found == [*sent, ("new", b"new")]
