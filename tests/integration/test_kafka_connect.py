"""Kafka Connect, distributed, with exactly-once sources: lines of a file, and MirrorMaker 2 from another cluster.

The rule: two workers write each line, and each record of the other cluster, once and in order, while leaders and
coordinators of both clusters die, and the workers one after the other (KIP-618, KIP-656). The workers' cluster is in
either mode, the other one in the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.clients.applications import connect_worker
from tests.clients.programs import KAFKA, KAFKA_4, Unavailable
from tests.clients.runs import STAGE, Child
from tests.integration.conftest import free_base_port
from tests.integration.failing_brokers import LIMIT_SECONDS, CommittedReader, FailingBrokers
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]
TEXT = "org.apache.kafka.connect.storage.StringConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONNECTORS = ("file", "mirror")
PORTS = 2
"""Of the workers' REST interfaces."""


class Names(NamedTuple):
    """Of one test's topics and group: the file's, the other cluster's, and the workers'."""

    lines: str
    far: str
    group: str

    @property
    def mirrored(self) -> str:
        """The topic that MirrorMaker makes, by its DefaultReplicationPolicy."""
        return f"there.{self.far}"


class Workers:
    """Two workers of one group, and their connectors.

    Args:
        near: the brokers that they use.
        names: of topics and group.
        version: of Kafka Connect.
        directory: for settings and logs.
    """

    def __init__(self, near: FailingBrokers, names: Names, version: str, directory: Path) -> None:
        self._command = connect_worker(version)
        self._near, self._names, self._directory = near, names, directory
        self._first_port = free_base_port(PORTS)
        self._children: dict[int, Child] = {}
        self._started = 0

    def start(self, worker: int) -> None:
        """Start a worker."""
        topics = {f"{kind}.storage.topic": f"{self._names.group}-{kind}" for kind in ("config", "offset", "status")}
        factors = {f"{kind}.storage.replication.factor": "3" for kind in ("config", "offset", "status")}
        settings = {
            "bootstrap.servers": self._near.servers,
            "group.id": self._names.group,
            "listeners": f"http://127.0.0.1:{self._first_port + worker}",
            "exactly.once.source.support": "enabled",
            "key.converter": TEXT,
            "value.converter": TEXT,
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            **topics,
            **factors,
        }
        file = self._directory / f"worker-{worker}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        log = self._directory / f"worker-{worker}-{self._started}.log"
        self._started += 1
        self._children[worker] = Child([*self._command, str(file)], {}, log)

    def kill(self, worker: int) -> None:
        """Kill a worker with SIGKILL."""
        self._children[worker].kill()

    def configure(self, connector: str, settings: dict[str, str]) -> None:
        """Create a connector, as soon as a worker takes it."""

        def is_created() -> bool:
            status, said = self._ask(0, "PUT", f"/connectors/{connector}/config", json.dumps(settings))
            assert status != HTTPStatus.BAD_REQUEST, said
            return status in {HTTPStatus.OK, HTTPStatus.CREATED}

        until(is_created, LIMIT_SECONDS, f"{connector} is created")

    def _ask(self, worker: int, method: str, path: str, body: str = "") -> tuple[int, str]:
        """Return status and text of a worker's response; status 0: it does not listen."""
        connection = HTTPConnection("127.0.0.1", self._first_port + worker, timeout=LIMIT_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def restart_failed(self) -> None:
        """Restart what has failed, as an operator would: Connect does not restart a task by itself."""
        for connector in CONNECTORS:
            path = f"/connectors/{connector}/restart?includeTasks=true&onlyFailed=true"
            next((worker for worker in self._children if self._ask(worker, "POST", path)[0] in range(200, 300)), None)

    def errors(self) -> str:
        return "\n".join(child.errors() for child in self._children.values())

    def close(self) -> None:
        """End all workers."""
        for child in self._children.values():
            child.kill()


class Flow:
    """What is written to the file and to the other cluster, and what the connectors made of it."""

    def __init__(self, near: FailingBrokers, far: FailingBrokers, names: Names, workers: Workers, file: Path) -> None:
        self._far, self._names, self._workers, self._file = far, names, workers, file
        self.written: list[str] = []
        self.readers = [CommittedReader(near.servers, topic) for topic in (names.lines, names.mirrored)]

    def write_a_stage(self) -> None:
        values = [f"record-{number:04d}" for number in range(len(self.written), len(self.written) + STAGE)]
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(f"{value}\n" for value in values)
        self._far.write(self._names.far, values)
        self.written += values

    def wait(self) -> None:
        """Wait until both topics have all that was written."""

        def counts() -> list[int]:
            return [len(set(reader.lines())) for reader in self.readers]

        def is_there() -> bool:
            if counts() == [len(self.written)] * 2:
                return True
            self._workers.restart_failed()
            return False

        try:
            until(is_there, LIMIT_SECONDS)
        except AssertionError:
            raise AssertionError(f"{counts()} of {len(self.written)}\n{self._workers.errors()}") from None


@pytest.fixture(params=[KAFKA, KAFKA_4])
def version(request: pytest.FixtureRequest) -> str:
    """A release of Kafka whose Connect can be had."""
    try:
        connect_worker(request.param)
    except Unavailable as problem:
        pytest.skip(f"Kafka Connect can't be had here: {problem}")
    return str(request.param)


@pytest.fixture(params=["zookeeper", "kraft"])
def clusters(
    request: pytest.FixtureRequest,
    cluster: LocalCluster,
    kraft_cluster: LocalCluster,
    record_property: Callable[[str, object], None],
) -> list[LocalCluster]:
    """The workers' cluster and the other one."""
    record_property("mode", request.param)
    both = [cluster, kraft_cluster]
    return both if request.param == "zookeeper" else both[::-1]


@pytest.fixture
def connected(
    clusters: list[LocalCluster], version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[FailingBrokers, FailingBrokers, Names, Workers, Flow]]:
    begin = "".join(letter if letter.isalnum() else "-" for letter in request.node.callspec.id)
    names = Names(f"{begin}-lines", f"{begin}-far", f"{begin}-connect")
    near = FailingBrokers(clusters[0], [names.lines, names.mirrored])
    far = FailingBrokers(clusters[1], [names.far])
    workers = Workers(near, names, version, tmp_path)
    file = tmp_path / "lines.txt"
    file.touch()
    flow = Flow(near, far, names, workers, file)
    for worker in range(PORTS):
        workers.start(worker)
    configure(workers, names, near, far, file)
    yield near, far, names, workers, flow
    workers.close()
    for reader in flow.readers:
        reader.close()
    near.close()
    far.close()


def configure(workers: Workers, names: Names, near: FailingBrokers, far: FailingBrokers, file: Path) -> None:
    """Create both connectors; each must promise exactly once."""
    common = {"tasks.max": "1", "exactly.once.support": "required", "producer.override.transaction.timeout.ms": "10000"}
    source = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    workers.configure("file", {"connector.class": source, "file": str(file), "topic": names.lines, **common})
    mirror = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "there",
        "target.cluster.alias": "here",
        "source.cluster.bootstrap.servers": far.servers,
        "target.cluster.bootstrap.servers": near.servers,
        "topics": names.far,
        "source.consumer.isolation.level": "read_committed",
        "refresh.topics.interval.seconds": "2",
        "sync.topic.acls.enabled": "false",
        "offset-syncs.topic.replication.factor": "3",
        "replication.factor": "3",
        "key.converter": BYTES,
        "value.converter": BYTES,
    }
    workers.configure("mirror", mirror | common)


@pytest.mark.kafka_client("workers with exactly-once sources: a file, and MirrorMaker 2 between clusters of both modes")
def test_sources_are_exactly_once_through_failovers(
    connected: tuple[FailingBrokers, FailingBrokers, Names, Workers, Flow],
    version: str,
    record_property: Callable[[str, object], None],
) -> None:
    near, far, names, workers, flow = connected
    record_property("client", "Java: Kafka Connect and MirrorMaker 2")
    record_property("version", version)
    flow.write_a_stage()
    flow.wait()
    deaths: list[tuple[FailingBrokers, Callable[[], int]]] = [
        (near, lambda: near.leader_of(names.lines)),
        (near, lambda: near.leader_of(names.mirrored)),
        (near, lambda: near.coordinator_of(names.group)),
        (near, near.transaction_coordinator),
        (far, lambda: far.leader_of(names.far)),
    ]
    for brokers, broker in deaths:
        with brokers.killed(broker()):
            flow.write_a_stage()
            flow.wait()
    for worker in range(PORTS):
        flow.write_a_stage()
        workers.kill(worker)
        workers.start(worker)
        flow.wait()
    assert [reader.lines() for reader in flow.readers] == [flow.written, flow.written]
