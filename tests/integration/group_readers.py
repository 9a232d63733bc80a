"""The members of one group of real clients in KRaft mode, each in a process of its own, and the records they read."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it names no exports
from tests.clients.programs import KAFKA_4, PLAIN, kafka_jars, tool
from tests.clients.runs import Child
from tests.integration.conftest import free_quorum_port
from tests.integration.copiers import JVM
from tests.kafka_requests import ask
from tests.waiting import until
from tests.wire_responses.probe import message

from tidegauge.java import java_program
from tidegauge.kafka.apis import FIND_COORDINATOR
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.wanted import WantedQuorum

LIMIT_SECONDS = 120.0
CLIENTS = Path(__file__).parents[1] / "clients"
TOPIC, GROUP, PARTITIONS = "orders", "readers", 6
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
}
"""Of the brokers: the times of the group's members, and assignments at once."""


@contextlib.contextmanager
def three_brokers(directory: Path, base_port: int) -> Iterator[LocalCluster]:
    """Run three brokers in KRaft mode; group.version is 1, as a new cluster has it."""
    quorum = WantedQuorum(controllers=1, port=free_quorum_port())
    made = LocalCluster.create(directory, 3, settings=SETTINGS, base_port=base_port, mode="kraft", quorum=quorum)
    try:
        made.up()
        yield made
    finally:
        made.down(grace_seconds=0)


class Readers:
    """The members of one group, and the records written for them.

    Args:
        cluster: on which they work.
        logs: a directory for what they print.
    """

    def __init__(self, cluster: LocalCluster, logs: Path) -> None:
        self._cluster, self._logs = cluster, logs
        self.servers = ",".join(cluster.kafka_bootstrap_servers)
        self.children: dict[str, Child] = {}
        self.written = 0
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)

    def java(self, name: str, protocol: str) -> None:
        program = str(CLIENTS / "java" / "GroupMember.java")
        words = [java_program(), *JVM, "-cp", f"{kafka_jars(KAFKA_4)}/*", program]
        self.start(name, [*words, self.servers, GROUP, TOPIC, protocol, name])

    def librdkafka(self, name: str, protocol: str = "classic") -> None:
        program = str(CLIENTS / "group_member.py")
        library = "confluent-consumer" if protocol == "consumer" else "confluent"
        self.start(name, [sys.executable, "-W", "ignore", program, library, self.servers, GROUP, TOPIC])

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.children[name] = Child(command, environment or {}, self._logs / f"{name}.log")

    def end(self, name: str) -> None:
        self.children.pop(name).end()

    def owned(self, name: str) -> list[int]:
        """Return the partitions that a member has said last."""
        said = [json.loads(line) for line in self.children[name].lines()]
        return next((one["assigned"] for one in reversed(said) if "assigned" in one), [])

    def wait_shared(self, *names: str, paused: str = "") -> None:
        """Wait until exactly these members have all partitions, each one of them some; a paused one does not count."""
        assert sorted(names) == sorted(set(self.children) - {paused})

        def shared() -> bool:
            parts = [self.owned(name) for name in names]
            return all(parts) and sorted(at for part in parts for at in part) == list(range(PARTITIONS))

        until(shared, LIMIT_SECONDS, f"{', '.join(names)} share all partitions")

    def write(self, count: int = 20) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "acks": "all", "log_level": 2})
        for number in range(count):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, f"{self.written + number}", partition=partition)
        assert producer.flush(LIMIT_SECONDS) == 0
        self.written += count

    def wait_read(self) -> None:
        """Wait until the group has committed everything that was written."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": GROUP, "log_level": 2})
        wanted = [confluent_kafka.TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]

        def committed() -> list[int]:
            for child in self.children.values():
                child.lines()
            try:
                return [one.offset for one in consumer.committed(wanted, 10.0)]
            except confluent_kafka.KafkaException:  # the coordinator may be on its way
                return []

        try:
            until(lambda: committed() == [self.written] * PARTITIONS, LIMIT_SECONDS, f"{self.written} each are read")
        finally:
            consumer.close()

    def table(self, *options: str) -> list[dict[str, str]]:
        """Return the rows that kafka-consumer-groups prints."""
        command = [*tool(KAFKA_4, "ConsumerGroupCommand"), "--bootstrap-server", self.servers, *options]
        done = subprocess.run(command, capture_output=True, text=True, env=PLAIN, check=False, timeout=LIMIT_SECONDS)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        head = next((number for number, line in enumerate(lines) if line.startswith("GROUP ")), None)
        assert head is not None, done.stdout + done.stderr
        names = lines[head].replace("COORDINATOR (ID)", "COORDINATOR ID").split()
        return [dict(zip(names, line.split(), strict=False)) for line in lines[head + 1 :]]

    def coordinator(self) -> int:
        request = message("FindCoordinator", key_type=0, coordinator_keys=[GROUP])
        found: Any = ask(self._cluster.kafka_bootstrap_servers[0], FIND_COORDINATOR, request, 4)
        [one] = found.coordinators
        assert one.error_code == 0
        return int(one.node_id)
