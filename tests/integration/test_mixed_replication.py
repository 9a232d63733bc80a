"""Apache Kafka 3.9.1 follows Tidegauge and Tidegauge follows Kafka, in one cluster (docs/mixed-clusters.md).

Each of three brokers leads a topic with acks=all and min.insync.replicas=2; each in turn is killed, and returns after
another has led and written. All replicas then have the same bytes, and a reader every acknowledged record once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import MakeCluster
from tests.waiting import until

from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402 - after the check that it is there
from tests.integration.apache_kafka import KafkaSide, Unavailable  # noqa: E402 - it starts Java

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1800)]
LIMIT_SECONDS = 120.0
SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "8000",
}
TOPICS = {"led-by-0": [0, 1, 2], "led-by-1": [1, 2, 0], "led-by-2": [2, 0, 1]}
RECORDS = 300


class Mixed:
    """A cluster in which some brokers are Apache Kafka's.

    Args:
        cluster: of Tidegauge brokers; the ones with Kafka's ids are down.
        kafka: in their places.
    """

    def __init__(self, cluster: LocalCluster, kafka: KafkaSide) -> None:
        self._cluster = cluster
        self._kafka = kafka.brokers
        self.bootstrap = ",".join(cluster.kafka_bootstrap_servers)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.sent: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}

    def create(self, topic: str) -> None:
        """Create one of the topics; the controller may be either kind."""
        config = {"min.insync.replicas": "2"}
        wanted = NewTopic(topic, num_partitions=1, replica_assignment=[TOPICS[topic]], config=config)
        self._admin.create_topics([wanted], operation_timeout=30)[topic].result()

    def state(self, topic: str) -> tuple[int, set[int]]:
        """Return leader and ISR, as the metadata of some broker has them."""
        found = self._admin.list_topics(topic, timeout=LIMIT_SECONDS).topics[topic].partitions.get(0)
        return (-1, set()) if found is None else (found.leader, set(found.isrs))

    def kill(self, broker_id: int) -> None:
        """SIGKILL."""
        if broker_id in self._kafka:
            self._kafka[broker_id].kill()
        else:
            self._cluster.kill(broker_id)

    def start(self, broker_id: int) -> None:
        """Start it again on its data."""
        if broker_id in self._kafka:
            self._kafka[broker_id].start()
            self._kafka[broker_id].wait_started()
        else:
            self._cluster.start(broker_id)

    def produce(self, topic: str) -> None:
        """Write records, all of which must be acknowledged."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for number in range(RECORDS):
            self.sent[topic].append(b"%d" % (len(self.sent[topic])))
            producer.produce(topic, self.sent[topic][-1], partition=0, on_delivery=delivered)
            if number % 50 == 0:
                producer.flush(LIMIT_SECONDS)
        assert producer.flush(LIMIT_SECONDS) == 0
        assert failed == []

    def read(self, topic: str) -> list[bytes]:
        """Return all values of a topic."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused"})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[bytes] = []

        def has_all() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value())
            return len(found) >= len(self.sent[topic])

        until(has_all, LIMIT_SECONDS, f"{topic} is read")
        consumer.close()
        return found

    def logs(self, topic: str) -> list[bytes]:
        """Return the records of each replica, as they are on disk."""
        return [self._log(broker.id, topic) for broker in self._cluster.file.brokers]

    def _log(self, broker_id: int, topic: str) -> bytes:
        (directory,) = layout.broker_log_directories(self._cluster.directory, broker_id)
        return b"".join(path.read_bytes() for path in sorted((directory / f"{topic}-0").glob("*.log")))


@pytest.fixture(params=[(2,), (1, 2)], ids=["one-of-kafka", "two-of-kafka"])
def mixed(request: pytest.FixtureRequest, make_cluster: MakeCluster, tmp_path: Path) -> Iterator[Mixed]:
    ids: tuple[int, ...] = request.param
    cluster: LocalCluster = make_cluster(settings=SETTINGS)
    for broker_id in ids:
        cluster.stop(broker_id)
    try:
        kafka = KafkaSide(cluster, tmp_path / "kafka", only=ids)
    except Unavailable as problem:
        pytest.skip(str(problem))
    try:
        kafka.start()
        yield Mixed(cluster, kafka)
    finally:
        kafka.kill()


def for_each(do: Callable[[str], object]) -> None:
    for topic in TOPICS:
        do(topic)


def test_every_broker_follows_every_other_and_no_acknowledged_record_is_lost(mixed: Mixed) -> None:
    for_each(mixed.create)

    def until_in_sync() -> None:
        for topic in TOPICS:
            until(lambda at=topic: mixed.state(at)[1] == {0, 1, 2}, LIMIT_SECONDS, f"{topic} is in sync")

    until_in_sync()
    assert {topic: mixed.state(topic)[0] for topic in TOPICS} == {"led-by-0": 0, "led-by-1": 1, "led-by-2": 2}
    for_each(mixed.produce)
    for broker_id in range(3):
        mixed.kill(broker_id)
        for topic in TOPICS:

            def has_failed_over(at: str = topic, dead: int = broker_id) -> bool:
                leader, isr = mixed.state(at)
                return leader not in {-1, dead} and dead not in isr

            until(has_failed_over, LIMIT_SECONDS, f"{topic} has another leader than {broker_id}")
        for_each(mixed.produce)
        mixed.start(broker_id)
        until_in_sync()

    for topic in TOPICS:
        until(lambda at=topic: len(set(mixed.logs(at))) == 1, LIMIT_SECONDS, f"all replicas of {topic} are the same")
        assert mixed.read(topic) == mixed.sent[topic]
