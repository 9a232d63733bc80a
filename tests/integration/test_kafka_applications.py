"""Frameworks on Kafka copy a topic: through killed leaders and coordinators, and through a kill of their own.

The rule: what a framework promises of Apache Kafka it keeps here. One that promises exactly once writes each record
once and in order, as a reader of committed records sees it; one that has a store finds it again, so that its numbers go
on; any other writes each record at least once. Each is tried in ZooKeeper mode and in KRaft mode; a process that ends
with an error is started again, as its supervisor would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.applications import APPLICATIONS, Application
from tests.clients.programs import Unavailable, filled
from tests.clients.runs import STAGE, Child
from tests.integration.failing_brokers import LIMIT_SECONDS, CommittedReader, FailingBrokers
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]
STANDSTILL_SECONDS = 60.0
MOST_STARTS = 30
"""A process that ends more often than that does not work at all."""


@pytest.fixture(params=APPLICATIONS)
def application(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Application:
    try:
        made = APPLICATIONS[request.param]()
    except Unavailable as problem:
        pytest.skip(f"{request.param} can't be had here: {problem}")
    record_property("client", made.client)
    record_property("version", made.version)
    return made


@pytest.fixture(params=["zookeeper", "kraft"])
def shared(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> LocalCluster:
    """The file's cluster in each mode."""
    record_property("mode", request.param)
    found: LocalCluster = request.getfixturevalue({"zookeeper": "cluster", "kraft": "kraft_cluster"}[request.param])
    return found


class Progress:
    """Whether a number has not risen for STANDSTILL_SECONDS, as a liveness probe sees it."""

    def __init__(self) -> None:
        self._count, self._since = -1, time.monotonic()

    def has_stopped(self, count: int) -> bool:
        """Note the number, and begin again after a standstill."""
        if count > self._count or time.monotonic() - self._since > STANDSTILL_SECONDS:
            is_stopped = count <= self._count
            self._count, self._since = count, time.monotonic()
            return is_stopped
        return False


class Copying:
    """An application at work: what is written to its source, and what a reader of committed records finds in its sink.

    Args:
        cluster: on which it works.
        application: what copies.
        name: begins the names of topics and group.
        directory: for state and logs.
    """

    def __init__(self, cluster: LocalCluster, application: Application, name: str, directory: Path) -> None:
        self.source, self.sink, self.group = f"{name}-in", f"{name}-out", f"{name}-group"
        self._application, self._directory = application, directory
        self._children: dict[int, Child] = {}
        self._started, self._ended = 0, ""
        self.written: list[str] = []
        written = [self.sink, *([f"{self.sink}-retried"] if application.retries else [])]
        self.brokers = FailingBrokers(cluster, [self.source, *written])
        self._readers = {topic: CommittedReader(self.brokers.servers, topic) for topic in written}

    def start(self, instance: int) -> None:
        """Start a process; its directory is that of the instance before."""
        directory = self._directory / f"instance-{instance}"
        words = {"source": self.source, "sink": self.sink, "group": self.group, "directory": str(directory)}
        command = filled(self._application.command, servers=self.brokers.servers, **words)
        log = self._directory / f"{instance}-{self._started}.log"
        self._started += 1
        self._children[instance] = Child(command, self._application.environment, log)

    def kill(self, instance: int) -> None:
        """Kill a process with SIGKILL."""
        self._children[instance].kill()

    def write_a_stage(self) -> None:
        values = [f"record-{number:04d}" for number in range(len(self.written), len(self.written) + STAGE)]
        self.brokers.write(self.source, values)
        self.written += values

    def found(self, topic: str) -> list[str]:
        """Return what has come to a topic so far; an instance that has ended is started again."""
        for instance, child in self._children.items():
            if child.has_ended():
                child.kill()  # closes its stdin
                self._ended = child.errors()
                assert self._started < MOST_STARTS, f"it ends again and again: {self._ended}"
                self.start(instance)
        return self._readers[topic].lines()

    def values(self) -> list[str]:
        """Return the values in the sink, without the numbers of a store."""
        return [line.rpartition(" ")[2] for line in self.found(self.sink)]

    def wait(self) -> None:
        """Wait until each record that was written has its copy; a process that may hang is watched meanwhile."""
        progress = Progress()

        def is_copied() -> bool:
            count = len(set(self.values()))
            if self._application.may_hang and progress.has_stopped(count):
                for child in self._children.values():
                    child.abort()
            return count == len(self.written)

        try:
            until(is_copied, LIMIT_SECONDS)
        except AssertionError as late:
            errors = "\n".join([*(child.errors() for child in self._children.values()), "ended:", self._ended])
            raise AssertionError(f"{len(set(self.values()))} of {len(self.written)} copied; {late}\n{errors}") from None

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.kill()
        for reader in self._readers.values():
            reader.close()
        self.brokers.close()


@pytest.fixture
def copying(
    shared: LocalCluster, application: Application, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Copying]:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.callspec.id)
    made = Copying(shared, application, name, tmp_path)
    yield made
    made.close()


@pytest.mark.kafka_client("copies a topic through killed leaders, coordinators and processes of its own")
def test_an_application_copies_a_topic_through_failovers(
    copying: Copying, application: Application, record_property: Callable[[str, object], None]
) -> None:
    promise = "exactly once" if application.is_exactly_once else "at least once"
    store = ", with a store that is restored" if application.has_state else ""
    retried = "; retry topics" if application.retries else ""
    retried += "; a process that stands still is started again" if application.may_hang else ""
    record_property(
        "what",
        f"copies a topic {promise}{store}, through killed leaders, coordinators and processes of its own{retried}",
    )
    for instance in range(application.instances):
        copying.start(instance)
    copying.write_a_stage()
    copying.wait()
    brokers = copying.brokers
    deaths: list[Callable[[], int]] = [
        lambda: brokers.leader_of(copying.source),
        lambda: brokers.leader_of(copying.sink),
        lambda: brokers.coordinator_of(copying.group),
    ]
    if application.is_exactly_once:
        deaths.append(brokers.transaction_coordinator)
    for broker in deaths:
        with brokers.killed(broker()):
            copying.write_a_stage()
            copying.wait()
    for instance in range(application.instances):
        copying.write_a_stage()
        copying.kill(instance)
        copying.start(instance)
        copying.wait()
    check(copying, application)


def check(copying: Copying, application: Application) -> None:
    """Assert what the application promises of all that was written."""
    if not application.is_exactly_once:
        assert list(dict.fromkeys(copying.values())) == copying.written
    elif application.has_state:
        assert copying.found(copying.sink) == [f"{number} {value}" for number, value in enumerate(copying.written)]
    else:
        assert copying.values() == copying.written
    if application.retries:
        refused = {value for value in copying.written if value.endswith("0")}
        topic = f"{copying.sink}-retried"
        until(lambda: set(copying.found(topic)) == refused, LIMIT_SECONDS, "refused records came back")
