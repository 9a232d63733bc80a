"""Java's consumers of Kafka 4.3.1 in KRaft mode: a group goes over to the consumer protocol while it reads (KIP-848).

Members of both protocols share it through a killed coordinator; Kafka's own tool prints it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it names no exports
from tests.clients.programs import KAFKA_4, PLAIN, Unavailable, kafka_jars, tool
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

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

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


@pytest.fixture
def cluster(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers in KRaft mode; group.version is 1, as a new cluster has it."""
    try:
        kafka_jars(KAFKA_4)
    except Unavailable as problem:
        pytest.skip(f"kafka-clients can't be had here: {problem}")
    quorum = WantedQuorum(controllers=1, port=free_quorum_port())
    made = LocalCluster.create(
        tmp_path / "cluster", 3, settings=SETTINGS, base_port=next_base_port(), mode="kraft", quorum=quorum
    )
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
        self._start(name, [*words, self.servers, GROUP, TOPIC, protocol, name])

    def librdkafka(self, name: str) -> None:
        program = str(CLIENTS / "group_member.py")
        self._start(name, [sys.executable, "-W", "ignore", program, "confluent", self.servers, GROUP, TOPIC])

    def _start(self, name: str, command: Sequence[str]) -> None:
        self.children[name] = Child(command, {}, self._logs / f"{name}.log")

    def end(self, name: str) -> None:
        self.children.pop(name).end()

    def owned(self, name: str) -> list[int]:
        """Return the partitions that a member has said last."""
        said = [json.loads(line) for line in self.children[name].lines()]
        return next((one["assigned"] for one in reversed(said) if "assigned" in one), [])

    def wait_shared(self, *names: str) -> None:
        """Wait until exactly these members have all partitions, each one of them some."""
        assert sorted(names) == sorted(self.children)

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


def test_a_group_goes_over_to_the_consumer_protocol_through_a_killed_coordinator(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Up and down while it reads (group.consumer.migration.policy=bidirectional)."""
    readers = Readers(cluster, tmp_path)
    try:
        readers.librdkafka("librdkafka")
        readers.java("java-classic", "classic")
        readers.wait_shared("librdkafka", "java-classic")
        readers.write()
        readers.wait_read()
        [listed] = readers.table("--list", "--type")
        assert (listed["GROUP"], listed["TYPE"]) == (GROUP, "Classic")

        readers.java("java-consumer", "consumer")
        readers.wait_shared("librdkafka", "java-classic", "java-consumer")
        readers.write()
        readers.wait_read()
        [listed] = readers.table("--list", "--type")
        assert (listed["GROUP"], listed["TYPE"]) == (GROUP, "Consumer")

        killed = readers.coordinator()
        cluster.kill(killed)
        readers.write()
        readers.wait_read()
        readers.wait_shared("librdkafka", "java-classic", "java-consumer")
        cluster.start(killed)
        cluster.wait_ready(LIMIT_SECONDS)

        rows = readers.table("--describe", "--group", GROUP)
        assert sorted(int(row["PARTITION"]) for row in rows) == list(range(PARTITIONS))
        assert {(row["CURRENT-OFFSET"], row["LAG"]) for row in rows} == {(str(readers.written), "0")}
        owners = {int(row["PARTITION"]): row["CLIENT-ID"] for row in rows}
        assert {owners[at] for at in readers.owned("java-consumer")} == {"java-consumer"}
        [state] = readers.table("--describe", "--state", "--group", GROUP)
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "3")
        members = readers.table("--describe", "--members", "--group", GROUP)
        assert sum(int(row["#PARTITIONS"]) for row in members) == PARTITIONS

        readers.end("java-consumer")
        readers.wait_shared("librdkafka", "java-classic")
        readers.write()
        readers.wait_read()
        [listed] = readers.table("--list", "--type")
        assert (listed["GROUP"], listed["TYPE"]) == (GROUP, "Classic"), "the last member of the protocol has left"
        readers.end("librdkafka")
        readers.java("java-consumer-2", "consumer")
        readers.wait_shared("java-classic", "java-consumer-2")
        readers.end("java-classic")
        readers.wait_shared("java-consumer-2")
        readers.write()
        readers.wait_read()
    finally:
        for child in readers.children.values():
            child.kill()
