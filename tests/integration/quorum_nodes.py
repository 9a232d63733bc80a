"""Quorums of controllers for tests: Tidegauge's processes, Apache Kafka 4.3.1's, or both in one quorum."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.clients import programs
from tests.integration import kafka_complaints
from tests.integration.conftest import free_base_port
from tests.integration.kafka_complaints import Complaint
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.java import java_program
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.security import PLAIN, Security
from tidegauge_broker.log.dump_verb import dump_log
from tidegauge_broker.server.quorum.format_verb import format_storage
from tidegauge_client.cluster_file import BootstrapServers
from tidegauge_client.quorum_admin import QuorumAdmin, QuorumView

CLUSTER = "pQKNjKG6SIW1R46E3fVjJA"
OURS, KAFKA = "ours", "kafka"
FIRST_ID = 3000
LIMIT_SECONDS = 240.0
PORTS_IN_A_ROW = 16
SETTINGS = {"controller.quorum.fetch.timeout.ms": "2000", "metadata.max.idle.interval.ms": "0"}
"""Kafka's timers; a Kafka controller that leads writes nothing while nothing happens, so that logs can be compared."""
JVM = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_COMPLAINT = re.compile(r"^\S+ \[.*?\] (WARN|ERROR) ", re.MULTILINE)
_TIMED = re.compile(r"\S*\d\d:\d\d:\d\d|\[\d{4}-")
_EXPECTED = (
    "could not be established. Node may not be available",  # a node that the test has killed
    "disconnected",
    "NetworkClient that has already been closed",  # at each stop
    "clientId=tidegauge-quorum-admin",  # DescribeCluster at a controller of Kafka that has not loaded its metadata yet
    "Performing controller activation",  # what each controller says that becomes active
    "Exceptionally slow controller event",  # a busy machine
    "Unable to register the metrics",
    "AppInfo",
)


def directory_id(number: int) -> bytes:
    """The id of a node's directory."""
    return bytes([0x11, number + 1]) * 8


def complaints_in(logs: Iterable[Path]) -> list[str]:
    """The complaints in Kafka's logs, but for those that every test expects."""
    found = [line for log in logs for line in lines_with_reasons(log, _COMPLAINT)]
    return [line for line in found if not any(one in line for one in _EXPECTED)]


def lines_with_reasons(log: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return the matching lines of a log, each with a following exception."""
    lines = log.read_text(errors="replace").splitlines()
    pairs = itertools.pairwise([*lines, ""])
    return [
        line if not after or _TIMED.match(after) else f"{line} {after}" for line, after in pairs if pattern.match(line)
    ]


_ports: list[int] = []


def unused_ports(count: int) -> list[int]:
    """Ports that nothing listens on now, and that the system gives to no outgoing connection while a node is down."""
    while len(_ports) < count:
        base = free_base_port(PORTS_IN_A_ROW)
        _ports.extend(range(base, base + PORTS_IN_A_ROW))
    taken = _ports[:count]
    del _ports[:count]
    return taken


class QuorumNode:
    """One controller and its directory.

    Args:
        number: 0 for the first.
        kind: ``OURS`` or ``KAFKA``.
        at: where its files go.
        port: of its listener.
        servers: ``controller.quorum.bootstrap.servers``.
        classpath: of Kafka's jars; empty for a node that is always ours.
        more: settings beside the usual ones.
    """

    def __init__(
        self,
        number: int,
        kind: str,
        at: Path,
        port: int,
        servers: str,
        classpath: str = "",
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.id, self.number, self.kind, self.port, self.at = FIRST_ID + number, number, kind, port, at
        self.config = at / f"controller-{self.id}.properties"
        self.log_directory = at / f"data-{self.id}"
        settings = (
            SETTINGS
            | {
                "process.roles": "controller",
                "node.id": str(self.id),
                "listeners": f"CONTROLLER://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
                "log.dirs": str(self.log_directory),
                "controller.quorum.bootstrap.servers": servers,
            }
            | dict(more or {})
        )
        self.config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._classpath = classpath
        self._process: subprocess.Popen[bytes] | None = None
        self._kinds: list[str] = []

    @property
    def endpoint(self) -> str:
        """The voter as ``--initial-controllers`` names it."""
        return f"{self.id}@127.0.0.1:{self.port}:{uuid_text(directory_id(self.number))}"

    @property
    def address(self) -> str:
        """``host:port`` of its listener."""
        return f"127.0.0.1:{self.port}"

    def format(self, *options: str) -> None:
        """Format its directory."""
        arguments = ["-t", CLUSTER, "-c", str(self.config), *options]
        done = CliRunner().invoke(format_storage, arguments)
        assert done.exit_code == 0, done.output

    def start(self) -> None:
        """Start its process."""
        self._kinds.append(self.kind)
        command = [sys.executable, "-m", "tidegauge_broker.server.quorum.verb", "--config", str(self.config)]
        if self.kind == KAFKA:
            simple = "-Dorg.slf4j.simpleLogger."
            log = (f"{simple}showDateTime=true", f"{simple}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS")
            command = [java_program(), *JVM, *log, "-cp", self._classpath, "kafka.Kafka", str(self.config)]
        with self._out(len(self._kinds)).open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def _out(self, start: int) -> Path:
        return self.at / f"controller-{self.id}-{start}.log"

    def log(self) -> str:
        """Return the log of its latest process."""
        return self._out(len(self._kinds)).read_text(errors="replace")

    @property
    def runs(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its latest process."""
        assert self._process is not None
        return self._process.pid

    def wait_started(self) -> None:
        """Wait until a Kafka controller has started whole: one that is stopped before ends with a fault of its own."""
        until(lambda: "Kafka Server started" in self.log(), LIMIT_SECONDS, f"controller {self.id} has started")

    def become(self, kind: str) -> None:
        """Change its kind while its process does not run; id, port and directory stay."""
        assert not self.runs, f"controller {self.id} runs"
        self.kind = kind

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

    def complaints(self) -> list[str]:
        """The lines of all its processes at WARN and above, but for those that a dead neighbour explains."""
        return complaints_in(self._out(start) for start in range(1, len(self._kinds) + 1))

    def complaints_of(self, kind: str) -> list[str]:
        """Return the complaints of its processes of one kind."""
        return complaints_in(self._out(start) for start, one in enumerate(self._kinds, 1) if one == kind)

    def complaints_of_kafka(self) -> list[Complaint]:
        """All lines at WARN and above of its processes of Apache Kafka's kind."""
        logs = [self._out(start) for start, one in enumerate(self._kinds, 1) if one == KAFKA]
        return [complaint for log in logs for complaint in kafka_complaints.complaints_in(log, self.id)]

    @property
    def metadata_directory(self) -> Path:
        """Where its metadata log and its snapshots are."""
        return self.log_directory / "__cluster_metadata-0"

    def segments(self) -> bytes:
        """The bytes of its metadata log."""
        paths = sorted(self.metadata_directory.glob("*.log"))
        return b"".join(path.read_bytes() for path in paths)

    def dump(self) -> str:
        """Its metadata log as text."""
        paths = sorted(self.metadata_directory.glob("*.log"))
        return CliRunner().invoke(dump_log, ["--cluster-metadata-decoder", *map(str, paths)]).output


class Quorum:
    """Some controllers, formatted as the voters of one quorum.

    Args:
        at: where their files go.
        kinds: of each.
        classpath: of Kafka's jars.
        settings: of each node, beside the usual ones.
        features: options of the format, such as ``--feature NAME=LEVEL``.
        security: by which the tests look at it.
    """

    def __init__(
        self,
        at: Path,
        kinds: Sequence[str],
        classpath: str = "",
        settings: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        security: Security = PLAIN,
    ) -> None:
        self.at, self._classpath, self._settings, self._security = at, classpath, settings, security
        self._ports = unused_ports(len(kinds) + 1)
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self._ports[: len(kinds)])
        self.nodes = [self._node(number, kind) for number, kind in enumerate(kinds)]
        voters = ",".join(node.endpoint for node in self.nodes)
        for node in self.nodes:
            node.format("--initial-controllers", voters, *features)

    def _node(self, number: int, kind: str) -> QuorumNode:
        return QuorumNode(number, kind, self.at, self._ports[number], self.servers, self._classpath, self._settings)

    def join(self, kind: str = OURS) -> QuorumNode:
        """Start one more controller, which is no voter."""
        node = self._node(len(self.nodes), kind)
        node.format("--no-initial-controllers")
        self.nodes.append(node)
        node.start()
        return node

    def start(self) -> None:
        """Start all processes."""
        for node in self.nodes:
            node.start()

    def node(self, node_id: int) -> QuorumNode:
        """The node with this id."""
        return next(node for node in self.nodes if node.id == node_id)

    def look(self, without: int | None = None) -> QuorumView | None:
        """The quorum as its leader describes it to a client that does not ask one node; None if there is no leader."""
        nodes = sorted(self.nodes, key=lambda node: node.kind == KAFKA)
        living = [node.address for node in nodes if node.runs and node.id != without]

        async def describe() -> QuorumView:
            async with QuorumAdmin(BootstrapServers(living, self._security), 2.0) as admin:
                return await admin.describe()

        with contextlib.suppress(TidegaugeError):
            return asyncio.run(describe())
        return None

    def wait_leader(self, *, other_than: int | None = None, without: int | None = None) -> QuorumView:
        """Wait for a leader that has committed a record of its epoch; return the quorum.

        Args:
            other_than: who must not be it.
            without: who is not asked, since it is paused.
        """

        def led() -> QuorumView | None:
            view = self.look(without)
            return view if view is not None and view.high_watermark >= 0 and view.leader_id != other_than else None

        view = until(led, LIMIT_SECONDS, "the quorum has a leader")
        assert view is not None
        return view

    def wait_equal(self) -> QuorumView:
        """Wait until every living node has the leader's whole log, and all of it is committed."""
        living = {node.id for node in self.nodes if node.runs}

        def equal() -> QuorumView | None:
            view = self.look()
            if view is None:
                return None
            ends = {one.id: one.log_end_offset for one in (*view.voters, *view.observers)}
            return view if {ends.get(one) for one in living} == {view.high_watermark} else None

        view = until(equal, LIMIT_SECONDS, "all logs are equally long")
        assert view is not None
        return view

    def end(self) -> None:
        """Kill what still runs."""
        for node in self.nodes:
            if node.runs:
                node.kill()


@contextlib.contextmanager
def quorum_of(
    at: Path,
    kinds: Sequence[str],
    classpath: str = "",
    settings: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    security: Security = PLAIN,
) -> Iterator[Quorum]:
    """A quorum whose processes are killed in the end."""
    quorum = Quorum(at, kinds, classpath, settings, features, security)
    try:
        quorum.start()
        yield quorum
    finally:
        quorum.end()


def kafka_classpath() -> str:
    """The class path of Kafka 4.3.1 with a logger; skips the test if Maven can't bring it."""
    try:
        return programs.kafka_classpath()
    except programs.Unavailable as reason:
        pytest.skip(str(reason))
