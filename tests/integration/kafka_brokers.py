"""Brokers of Apache Kafka 4.3.1 in KRaft mode, on a quorum of controllers of any kind."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner
from tests.integration.quorum_nodes import CLUSTER, JVM, LIMIT_SECONDS, complaints_in, unused_ports
from tests.waiting import until

from tidegauge.java import java_program
from tidegauge_broker.server.quorum.format_verb import format_storage

_EXPECTED = (
    "Non-monotonic update of high watermark",  # a follower returns to a leader alone below min.insync.replicas
    "to exist, but it was missing. Creating",  # each new replica of a topic that the broker knows
    "marked as failed",  # a fetch meets a leader's newer epoch
    "Error in response for fetch request",  # the leader has ended
    "This error may be returned transiently",  # a follower knows a new topic before its leader does
    "Auto topic creation failed",  # two brokers create the same topic
)
"""Complaints that Kafka's brokers have under Kafka's controllers, too."""


class KraftBroker:
    """One broker process of Apache Kafka 4.3.1.

    Args:
        broker_id: its id.
        at: where its files go.
        servers: ``controller.quorum.bootstrap.servers``.
        classpath: of Kafka's jars.
        settings: beside the usual ones.
        directories: how many log directories it has.
    """

    def __init__(
        self,
        broker_id: int,
        at: Path,
        servers: str,
        classpath: str,
        settings: Mapping[str, str] | None = None,
        directories: int = 1,
    ) -> None:
        self.id, self.at = broker_id, at
        self.port = unused_ports(1)[0]
        self.config = at / f"broker-{broker_id}.properties"
        self.log_dirs = [at / f"broker-{broker_id}-{number}" for number in range(directories)]
        self._classpath = classpath
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        values = {
            "process.roles": "broker",
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "controller.quorum.bootstrap.servers": servers,
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
        } | dict(settings or {})
        self.config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        done = CliRunner().invoke(format_storage, ["-t", CLUSTER, "-c", str(self.config)])
        assert done.exit_code == 0, done.output

    @property
    def address(self) -> str:
        """``host:port`` of its listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start its process; ``wait_started`` waits for it."""
        self._starts += 1
        simple = "-Dorg.slf4j.simpleLogger."
        log = (f"{simple}showDateTime=true", f"{simple}dateTimeFormat=HH:mm:ss,SSS")
        command = [java_program(), *JVM, *log, "-cp", self._classpath, "kafka.Kafka", str(self.config)]
        with self._out(self._starts).open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def _out(self, start: int) -> Path:
        return self.at / f"broker-{self.id}-{start}.log"

    def log(self) -> str:
        """Return the log of its latest process."""
        return self._out(self._starts).read_text(errors="replace")

    def wait_started(self) -> None:
        """Wait until it is unfenced and serves clients."""

        def is_up() -> bool:
            assert self.runs, f"broker {self.id} has ended:\n{self.log()[-4_000:]}"
            return "Kafka Server started" in self.log()

        until(is_up, LIMIT_SECONDS, f"broker {self.id} is unfenced")

    def send(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when the process has ended."""
        self.send(signal.SIGKILL)
        self.wait_ended()

    def stop(self) -> int:
        """SIGTERM: a controlled shutdown; returns the exit status when the process has ended."""
        self.send(signal.SIGTERM)
        return self.wait_ended()

    def wait_ended(self) -> int:
        """Wait until the process has ended; return its exit status."""
        assert self._process is not None
        return self._process.wait(LIMIT_SECONDS)

    def complaints(self) -> list[str]:
        """The lines of all its processes at WARN and above, but for those that a dead neighbour explains."""
        found = complaints_in(self._out(start) for start in range(1, self._starts + 1))
        return [line for line in found if not any(one in line for one in _EXPECTED)]

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.runs:
            self.kill()
