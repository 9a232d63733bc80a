"""Controller and brokers of both kinds: Tidegauge steers an Apache Kafka 3.9.1 broker, and the other way round.

Broker 2 of three is Apache Kafka's, on the same ZooKeeper. Seen are any broker's clients' view, and the lines that
Kafka's broker logs at WARN and above.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.apache_kafka import KafkaBroker, KafkaSide, Unavailable
from tests.integration.conftest import of_a_file
from tests.integration.mixed_cluster import EXPECTED
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

TOPIC = "orders"
LIMIT_SECONDS = 120


@pytest.fixture
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with of_a_file(
        {"zookeeper": f"{zookeeper}/apache-kafka-controller"},
        tmp_path_factory,
        {"inter.broker.listener.name": "PLAINTEXT"},
    ) as made:
        made.stop(2)
        yield made


@pytest.fixture
def kafka(cluster: LocalCluster, tmp_path: Path) -> Iterator[KafkaBroker]:
    """Broker 2, which takes part before the test begins."""
    try:
        side = KafkaSide(cluster, tmp_path / "kafka", {"auto.leader.rebalance.enable": "false"}, only=[2])
    except Unavailable as why:
        pytest.skip(str(why))
    side.start()
    yield side.brokers[2]
    side.kill()


class View:
    """A client's view at one broker."""

    def __init__(self, cluster: LocalCluster, broker_id: int) -> None:
        self._address = str(next(one.kafka_address for one in cluster.file.brokers if one.id == broker_id))
        self.admin = AdminClient({"bootstrap.servers": self._address})

    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=30).controller_id)

    def partitions(self, topic: str = TOPIC) -> dict[int, tuple[int, set[int]]]:
        """Leader and ISR of each partition."""
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return {index: (one.leader, set(one.isrs)) for index, one in found.items()}

    def wait_isr(self, *members: int) -> None:
        until(
            lambda: all(isr == set(members) for _, isr in self.partitions().values()),
            LIMIT_SECONDS,
            f"each ISR has {members}",
        )

    def create(self, topic: str) -> None:
        placed = NewTopic(topic, 3, replica_assignment=[[2, 0, 1], [0, 1, 2], [1, 2, 0]])
        self.admin.create_topics([placed])[topic].result(60)

    def produce(self, count: int = 90) -> None:
        """Records with acks=all to all partitions; each must be acknowledged."""
        failed: list[str] = []
        producer = Producer({"bootstrap.servers": self._address, "acks": "all", "message.timeout.ms": 60_000})
        for number in range(count):
            producer.produce(
                TOPIC,
                b"%d" % number,
                partition=number % 3,
                on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
            )
        assert producer.flush(90) == 0
        assert failed == []


def unexpected(kafka: KafkaBroker) -> list[str]:
    return [line for line in kafka.complaints() if not any(known in line for known in EXPECTED)]


def test_tidegauge_steers_a_kafka_broker(cluster: LocalCluster, kafka: KafkaBroker) -> None:
    """Roles, ISR changes, controlled shutdown, death and return, and the deletion of a topic."""
    view = View(cluster, 0)
    assert view.controller() in {0, 1}
    view.create(TOPIC)
    until(lambda: [leader for leader, _ in view.partitions().values()] == [2, 0, 1], LIMIT_SECONDS, "leaders")
    view.produce()
    view.wait_isr(0, 1, 2)
    kafka.stop()
    kafka.wait_ended()
    assert "Controlled shutdown request returned successfully" in kafka.log()
    assert unexpected(kafka) == []
    view.wait_isr(0, 1)
    view.produce()
    kafka.start()
    kafka.wait_started()
    view.wait_isr(0, 1, 2)
    kafka.kill()
    view.wait_isr(0, 1)
    view.produce()
    kafka.start()
    kafka.wait_started()
    view.wait_isr(0, 1, 2)
    view.admin.delete_topics([TOPIC])[TOPIC].result(60)
    until(
        lambda: not [one for one in kafka.log_dirs[0].glob(f"{TOPIC}-*") if not one.name.endswith("-delete")],
        LIMIT_SECONDS,
        "the Kafka broker has deleted the topic",
    )
    assert unexpected(kafka) == []


def test_a_kafka_broker_steers_tidegauges(cluster: LocalCluster, kafka: KafkaBroker) -> None:
    """It becomes the controller when both of ours stop; it returns their roles, ISRs, and their controlled shutdown."""
    View(cluster, 0).create(TOPIC)
    for broker_id in (0, 1):
        cluster.stop(broker_id)
    view = View(cluster, 2)
    until(lambda: view.controller() == 2, LIMIT_SECONDS, "the Kafka broker is the controller")
    for broker_id in (0, 1):
        cluster.start(broker_id)
    view.wait_isr(0, 1, 2)
    assert View(cluster, 0).controller() == 2
    view.produce()
    cluster.kill(0)
    view.wait_isr(1, 2)
    view.produce()
    cluster.start(0)
    view.wait_isr(0, 1, 2)
    cluster.stop(1)
    log = (cluster.directory / "logs" / "broker-1.log").read_text()
    assert log.count("Controlled shutdown request returned successfully") == 2
    view.wait_isr(0, 2)
    cluster.start(1)
    view.wait_isr(0, 1, 2)
    view.create("returns")
    view.admin.delete_topics(["returns"])["returns"].result(60)
    until(lambda: "returns" not in view.admin.list_topics(timeout=30).topics, LIMIT_SECONDS, "returns is deleted")
    assert unexpected(kafka) == []
    kafka.kill()
    left = View(cluster, 0)
    until(lambda: left.controller() in {0, 1}, LIMIT_SECONDS, "a Tidegauge broker is the controller again")
    left.wait_isr(0, 1)
    left.produce()
