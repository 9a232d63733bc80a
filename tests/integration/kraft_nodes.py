"""Brokers of a KRaft cluster for tests: Tidegauge's processes and Apache Kafka 4.3.1's, on a quorum of controllers."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.integration.kafka_complaints import Complaint, complaints_in
from tests.integration.quorum_nodes import (
    CLUSTER,
    KAFKA,
    LIMIT_SECONDS,
    OURS,
    Quorum,
    directory_id,
    lines_with_reasons,
    unused_ports,
)
from tests.waiting import until

from tidegauge.java import java_program
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge_broker.server.quorum.format_verb import format_storage

FEATURES = ("--feature", "streams.version=0")
"""A new cluster of 4.3 but for what Tidegauge's brokers do not have, so that brokers of both kinds can be members."""
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "5000",
}
_JVM = ("-Xmx384m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_COMPLAINT = re.compile(r"^\S+ (\[.*?\] )?(WARN|WARNING|ERROR|CRITICAL) ", re.MULTILINE)


class BrokerNode:
    """One broker and its directories.

    Args:
        broker_id: its id.
        kind: ``OURS`` or ``KAFKA``.
        at: where its files go.
        servers: ``controller.quorum.bootstrap.servers``.
        classpath: of Kafka's jars; empty for a broker that is always ours.
        directories: how many log directories it has.
        controller_port: of its controllers' listener, if it is a controller too.
        voters: options of the format that name the first voters.
        settings: beside the usual ones.
    """

    def __init__(
        self,
        broker_id: int,
        kind: str,
        at: Path,
        servers: str,
        classpath: str = "",
        *,
        directories: int = 1,
        controller_port: int | None = None,
        voters: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.id, self.kind, self._classpath, self._at = broker_id, kind, classpath, at
        self._settings, self._servers, self._controller_port = settings or {}, servers, controller_port
        self.port, self._grpc_port = unused_ports(2)
        self.directories = [at / f"broker-{broker_id}-{number}" for number in range(directories)]
        self.config = at / f"broker-{broker_id}.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._kinds: list[str] = []
        self._configure()
        done = CliRunner().invoke(format_storage, ["-t", CLUSTER, "-c", str(self.config), *FEATURES, *voters])
        assert done.exit_code == 0, done.output

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None, "it was started"
        return self._process.pid

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def grpc_address(self) -> str:
        """``host:port`` of its gRPC listener, if it is one of ours."""
        return f"127.0.0.1:{self._grpc_port}"

    def _configure(self) -> None:
        """Write its properties; a broker of Kafka's has no gRPC listener."""
        listeners = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        if self.kind == OURS:
            listeners.append(f"GRPC://127.0.0.1:{self._grpc_port}")
        if self._controller_port is not None:
            listeners.append(f"CONTROLLER://127.0.0.1:{self._controller_port}")
        texts = {
            **SETTINGS,
            "process.roles": "broker" if self._controller_port is None else "broker,controller",
            "node.id": str(self.id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GRPC:PLAINTEXT",
            "log.dirs": ",".join(map(str, self.directories)),
            "controller.quorum.bootstrap.servers": self._servers,
            **self._settings,
        }
        self.config.write_text("".join(f"{name}={value}\n" for name, value in texts.items()))

    def become(self, kind: str) -> None:
        """Change its kind while its process does not run; id, ports and directories stay."""
        assert not self.runs, f"broker {self.id} runs"
        self.kind = kind

    def start(self) -> None:
        """Start its process."""
        self._configure()
        self._kinds.append(self.kind)
        command = [sys.executable, "-m", "tidegauge_broker.server.verb", "--config", str(self.config)]
        if self.kind == KAFKA:
            simple = "-Dorg.slf4j.simpleLogger."
            log = (f"{simple}showDateTime=true", f"{simple}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS")
            command = [java_program(), *_JVM, *log, "-cp", self._classpath, "kafka.Kafka", str(self.config)]
        with self._out(len(self._kinds)).open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def _out(self, start: int) -> Path:
        return self._at / f"broker-{self.id}-{start}.log"

    def log(self) -> str:
        """Return the log of its latest process."""
        return self._out(len(self._kinds)).read_text(errors="replace")

    @property
    def runs(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def wait_started(self) -> None:
        """Wait until clients are served: the broker is not fenced then."""

        def is_served() -> bool:
            assert self.runs, self.log()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return "] started" in self.log() or "Kafka Server started" in self.log()
            return False

        until(is_served, LIMIT_SECONDS, f"broker {self.id} has started")

    def send(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when the process has ended."""
        self.send(signal.SIGKILL)
        self.wait_ended()

    def stop(self) -> int:
        """SIGTERM; returns the exit status when the process has ended."""
        self.send(signal.SIGTERM)
        return self.wait_ended()

    def wait_ended(self) -> int:
        """Wait until the process has ended; return its exit status."""
        assert self._process is not None
        return self._process.wait(LIMIT_SECONDS)

    def complaints(self, expected: Sequence[str] = ()) -> list[str]:
        """The lines of all its processes at WARN and above, but for those that contain one of these texts."""
        lines = [line for kind in dict.fromkeys(self._kinds) for line in self.complaints_of(kind)]
        return [line for line in lines if not any(one in line for one in expected)]

    def complaints_of(self, kind: str) -> list[str]:
        """The lines at WARN and above of its processes of one kind."""
        logs = [self._out(start) for start, one in enumerate(self._kinds, 1) if one == kind]
        return [line for log in logs for line in lines_with_reasons(log, _COMPLAINT)]

    def complaints_of_kafka(self) -> list[Complaint]:
        """The lines at WARN and above of its processes of Apache Kafka's kind."""
        logs = [self._out(start) for start, one in enumerate(self._kinds, 1) if one == KAFKA]
        return [complaint for log in logs for complaint in complaints_in(log, self.id)]


class KRaftBrokers:
    """The brokers of one cluster.

    Args:
        nodes: the brokers.
    """

    def __init__(self, nodes: Sequence[BrokerNode]) -> None:
        self.nodes = nodes

    @property
    def servers(self) -> str:
        """The addresses of all of them."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Start all, and wait until all are served."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_started()

    @cached_property
    def admin(self) -> AdminClient:
        """A client for admins; its requests end with it."""
        return AdminClient({"bootstrap.servers": self.servers})

    def produce(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        """Produce with acks=all; every record is acknowledged."""
        failed: list[str] = []
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "message.timeout.ms": 60_000})
        for value in values:
            producer.produce(
                topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
            )
        assert producer.flush(90) == 0
        assert not failed, failed

    def partition(self, topic: str, partition: int = 0) -> tuple[int, list[int]]:
        """Leader and ISR of a partition, as clients see them."""
        found = self.admin.list_topics(topic, timeout=20).topics[topic].partitions[partition]
        return found.leader, sorted(found.isrs)

    def wait_isr(self, topic: str, members: Sequence[int], partition: int = 0) -> None:
        """Wait until these brokers are in sync."""

        def is_so() -> bool:
            with contextlib.suppress(KeyError):
                return self.partition(topic, partition)[1] == sorted(members)
            return False

        until(is_so, LIMIT_SECONDS, f"the ISR of {topic}-{partition} is {sorted(members)}")

    def end(self) -> None:
        """Kill what still runs."""
        for node in self.nodes:
            if node.runs:
                node.kill()


@contextlib.contextmanager
def brokers_of(
    quorum: Quorum, kinds: Sequence[str], classpath: str = "", settings: Mapping[str, str] | None = None
) -> Iterator[KRaftBrokers]:
    """Brokers on a quorum that runs; the first one has two log directories. They are killed in the end."""
    at, servers = quorum.at, quorum.servers
    nodes = [
        BrokerNode(number, kind, at, servers, classpath, directories=2 if number == 0 else 1, settings=settings)
        for number, kind in enumerate(kinds)
    ]
    with _killed_in_the_end(nodes) as brokers:
        yield brokers


@contextlib.contextmanager
def combined_of(at: Path, count: int) -> Iterator[KRaftBrokers]:
    """Processes of ours that are brokers and controllers, which are killed in the end."""
    ports = unused_ports(count)
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    voters = ",".join(
        f"{number}@127.0.0.1:{port}:{uuid_text(directory_id(number))}" for number, port in enumerate(ports)
    )
    options = ("--initial-controllers", voters)
    nodes = [
        BrokerNode(number, OURS, at, servers, controller_port=port, voters=options) for number, port in enumerate(ports)
    ]
    with _killed_in_the_end(nodes) as brokers:
        yield brokers


@contextlib.contextmanager
def _killed_in_the_end(nodes: Sequence[BrokerNode]) -> Iterator[KRaftBrokers]:
    brokers = KRaftBrokers(nodes)
    try:
        yield brokers
    finally:
        brokers.end()
