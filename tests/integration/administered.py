"""A cluster of brokers of either kind, as administrators' clients see it: librdkafka's, and Kafka's own tools."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import ElectionType
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.clients.programs import tool
from tests.integration.swap_clients import LIMIT_SECONDS, retried
from tests.waiting import until

ROUND = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
"""Three partitions, one led by each of three brokers."""


class Administered:
    """A cluster as an administrator sees it.

    Args:
        servers: addresses of its brokers.
        release: of Kafka, whose tools are run.
    """

    def __init__(self, servers: str, release: str) -> None:
        self.servers, self._release = servers, release

    def admin(self) -> Any:
        """Return a new admin client."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 2})

    def create_topic(self, name: str, assignment: list[list[int]], **config: str) -> None:
        """Create a topic with its replicas placed."""
        topic = NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment, config=config)

        def create() -> None:
            admin = self.admin()
            for future in admin.create_topics([topic]).values():
                future.result(LIMIT_SECONDS)

        retried(create)
        self.wait_in_sync(name)

    def elect_preferred(self, topic: str, partitions: Iterable[int]) -> None:
        """Elect the preferred leaders of partitions."""
        wanted = [confluent_kafka.TopicPartition(topic, partition) for partition in partitions]

        def elect() -> None:
            admin = self.admin()
            admin.elect_leaders(ElectionType.PREFERRED, wanted).result(LIMIT_SECONDS)

        retried(elect)

    def alter(self, broker_id: int, name: str, value: str | None) -> None:
        """Set a dynamic setting of a broker; None: delete it."""
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])

        def alter() -> None:
            admin = self.admin()
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(LIMIT_SECONDS)

        retried(alter)

    def wait_host(self, broker_id: int, host: str) -> None:
        """Wait until every broker sends clients to this host for a broker."""

        def is_sent() -> bool:
            admins = [AdminClient({"bootstrap.servers": one, "log_level": 2}) for one in self.servers.split(",")]
            found = [one.list_topics(timeout=10.0).brokers.get(broker_id) for one in admins]
            return all(one is not None and one.host == host for one in found)

        until(is_sent, LIMIT_SECONDS, f"broker {broker_id} is at {host}")

    def tool(self, name: str, *words: str) -> str:
        """Run one of Kafka's own tools; return its output. Raise AssertionError if it fails."""
        command = [*tool(self._release, name), "--bootstrap-server", self.servers, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def partitions(self, topic: str) -> dict[int, Any]:
        """Return the partitions of a topic in a broker's metadata."""
        try:
            found = self.admin().list_topics(topic, timeout=10.0).topics[topic]
        except confluent_kafka.KafkaException:
            return {}
        return dict(found.partitions)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return a partition's leader; -1 without one."""
        found = self.partitions(topic).get(partition)
        return -1 if found is None else int(found.leader)

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every partition of a topic has a leader and all its replicas in sync."""

        def in_sync() -> bool:
            found = self.partitions(topic)
            return bool(found) and all(one.leader >= 0 and len(one.isrs) == len(one.replicas) for one in found.values())

        until(in_sync, LIMIT_SECONDS, f"{topic} is in sync")
