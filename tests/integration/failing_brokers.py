"""Brokers that are killed under what others have built on Kafka, and readers of what it wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import TRANSACTION

LIMIT_SECONDS = 240.0


class FailingBrokers:
    """The brokers of a cluster, with topics of one partition and three replicas.

    Args:
        cluster: whose brokers are killed.
        topics: to create.
    """

    def __init__(self, cluster: LocalCluster, topics: Sequence[str]) -> None:
        self.servers = ",".join(cluster.kafka_bootstrap_servers)
        self._cluster, self._topics = cluster, topics
        self._admin = SyncAdmin(cluster.bootstrap_servers)
        self._admin.start()
        for topic in topics:
            self._admin.create_topic(topic, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
            self._admin.wait_for_topic(topic)
        self._known_ids = self._transactional_ids()
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})

    def write(self, topic: str, values: Sequence[str]) -> None:
        """Write values; they may wait until the topic has a leader."""
        for value in values:
            self._producer.produce(topic, value, "k", 0)
        assert self._producer.flush(LIMIT_SECONDS) == 0

    @contextlib.contextmanager
    def killed(self, broker: int) -> Iterator[None]:
        """Kill a broker for the block, then bring it back into every ISR."""
        self._cluster.kill(broker)
        yield
        self._cluster.start(broker)
        until(lambda: self._in_sync() == {3}, LIMIT_SECONDS, "all replicas are in sync")

    def leader_of(self, topic: str) -> int:
        return self._cluster.leader_of(topic, 0)

    def coordinator_of(self, group: str) -> int:
        return self._cluster.coordinator_of(group)

    def transaction_coordinator(self) -> int:
        """Return the coordinator of a transactional id that came after the topics."""
        own = until(lambda: self._transactional_ids() - self._known_ids, LIMIT_SECONDS, "a transactional id")
        return self._cluster.coordinator_of(min(own), TRANSACTION)

    def _transactional_ids(self) -> set[str]:
        with contextlib.suppress(TidegaugeError):  # a coordinator is not there yet
            return {one.transactional_id for one in self._admin.list_transactions()}
        return set()

    def _in_sync(self) -> set[int]:
        with contextlib.suppress(TidegaugeError):  # the broker is on its way
            return {len(topic.partitions[0].isr) for topic in self._admin.describe_topics(self._topics)}
        return set()

    def close(self) -> None:
        del self._producer  # it would look for the brokers for ever
        self._admin.stop()


class CommittedReader:
    """A reader of the committed records of partition 0 of a topic, which goes on through failovers.

    Args:
        servers: the brokers.
        topic: which may come into being later.
    """

    def __init__(self, servers: str, topic: str) -> None:
        settings = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({"bootstrap.servers": servers, **settings})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._found: list[str] = []

    def lines(self) -> list[str]:
        """Return the values of all that was found so far."""
        while (message := self._consumer.poll(0.1)) is not None:
            if message.error() is None:
                self._found.append(message.value().decode())
        return self._found

    def close(self) -> None:
        self._consumer.close()
