"""Apache Kafka brokers (ZooKeeper mode) on given directories, ports and ZooKeeper: alone, or beside Tidegauge's.

``KafkaBroker`` is one process. ``KafkaSide`` are those that stand in for brokers of a ``LocalCluster``: the same ids,
ports for Kafka clients, log directories, settings and ZooKeeper. Brokers of both kinds never run on one id together;
they may run beside each other where their listeners allow it.

Kafka's log goes to a file for each process, at INFO and above; ``complaints`` are its lines at WARN and above.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.clients.programs import KAFKA, Unavailable, kafka_jars
from tests.waiting import until

from tidegauge.java import java_program
from tidegauge_lab.local import layout
from tidegauge_lab.local.broker_settings import PROFILES, settings_of
from tidegauge_lab.local.cluster import LocalCluster

__all__ = ["KAFKA", "KafkaBroker", "KafkaSide", "Unavailable"]

LIMIT_SECONDS = 150.0
JVM = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG4J = """log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={path}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d{{ISO8601}} %p %m (%c)%n
log4j.logger.state.change.logger=INFO
log4j.logger.org.apache.zookeeper=WARN
"""
_COMPLAINT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (WARN|ERROR|FATAL) ")
_STARTED = " started (kafka.server.KafkaServer)"


class KafkaBroker:
    """One broker process of Apache Kafka.

    Args:
        broker_id: its id.
        settings: its server.properties but for id, listeners, directories and ZooKeeper.
        port: of its PLAINTEXT listener on 127.0.0.1.
        log_dirs: its log directories.
        zookeeper: ``host:port[/chroot]``.
        directory: for its server.properties and logs.

    Raises:
        Unavailable: Maven or Java is missing, or the jars can't be had.
    """

    def __init__(
        self,
        broker_id: int,
        settings: Mapping[str, str],
        *,
        port: int,
        log_dirs: Sequence[Path],
        zookeeper: str,
        directory: Path,
    ) -> None:
        self.id, self.port, self.log_dirs = broker_id, port, list(log_dirs)
        self._directory = directory
        self._settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": ",".join(map(str, log_dirs)),
            "zookeeper.connect": zookeeper,
        } | dict(settings)
        jars = kafka_jars(KAFKA).glob("*.jar")
        self._classpath = ":".join(sorted(str(jar) for jar in jars if not jar.name.startswith("slf4j-nop")))
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def log_file(self) -> Path:
        """The log of the latest process."""
        return self._directory / f"kafka-{self.id}-{self._starts}.log"

    @property
    def pid(self) -> int | None:
        """Its process, while that lives."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start the process; ``wait_started`` waits for it."""
        assert self.pid is None, f"broker {self.id} runs"
        self._starts += 1
        properties = self._directory / f"kafka-{self.id}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        log4j = self._directory / f"kafka-{self.id}.log4j.properties"
        log4j.write_text(LOG4J.format(path=self.log_file))
        command = [java_program(), *JVM, f"-Dlog4j.configuration=file:{log4j}", "-cp", self._classpath]
        with self.log_file.with_suffix(".out").open("wb") as out:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(properties)], stdout=out, stderr=out, start_new_session=True
            )

    def wait_started(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Wait until it has registered and serves; AssertionError with the end of its log if it has ended."""

        def is_up() -> bool:
            assert self.pid is not None, f"broker {self.id} has ended:\n{self.log()[-4_000:]}"
            return self.is_up()

        until(is_up, limit_seconds, f"Kafka broker {self.id} is up")

    def is_up(self) -> bool:
        """Whether its latest process has registered and serves."""
        if _STARTED not in self.log():
            return False
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self) -> str:
        """Return what the latest process has logged."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def complaints(self, *, of_all_starts: bool = False) -> list[str]:
        """Return the latest process's, or all processes', lines at WARN and above."""
        starts = range(1, self._starts + 1) if of_all_starts else [self._starts]
        files = [self._directory / f"kafka-{self.id}-{start}.log" for start in starts]
        return [line for file in files if file.exists() for line in _complaints(file.read_text(errors="replace"))]

    def stop(self) -> None:
        """Ask it for a controlled shutdown; ``wait_ended`` waits for it."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; returns when the process has ended."""
        self._send(signal.SIGKILL)
        self.wait_ended()

    def pause(self) -> None:
        """SIGSTOP."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def _send(self, signal_number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal_number)

    def wait_ended(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Wait for the end of its process."""
        if self._process is not None:
            self._process.wait(limit_seconds)


def _complaints(log: str) -> list[str]:
    found: list[str] = []
    in_complaint = False
    for line in log.splitlines():
        if re.match(r"\d{4}-\d\d-\d\d ", line):
            in_complaint = _COMPLAINT.match(line) is not None
            if in_complaint:
                found.append(line)
        elif in_complaint and not line.startswith("\tat "):
            found[-1] += f"\n{line}"
    return found


class KafkaSide:
    """Brokers of Apache Kafka that stand in for the brokers of a Tidegauge cluster that is down.

    Args:
        cluster: whose ids, ports, directories, settings and ZooKeeper they have.
        directory: for their server.properties and logs.
        settings: beside the cluster's own.
        only: which of the ids; none: all.

    Raises:
        Unavailable: as ``KafkaBroker``.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        only: Iterable[int] | None = None,
    ) -> None:
        ids = {broker.id for broker in cluster.file.brokers} if only is None else set(only)
        self.brokers = {
            broker.id: KafkaBroker(
                broker.id,
                settings_as_kafkas(cluster, broker.id) | dict(settings or {}),
                port=broker.kafka_port,
                log_dirs=layout.broker_log_directories(cluster.directory, broker.id),
                zookeeper=cluster.file.zookeeper_address,
                directory=directory,
            )
            for broker in cluster.file.brokers
            if broker.id in ids
        }

    def start(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Start all of them, and wait until each serves."""
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            broker.wait_started(limit_seconds)

    def stop(self) -> None:
        """Stop all of them by controlled shutdowns at once; the last can give its leaders to no other."""
        for broker in self.brokers.values():
            broker.stop()
        for broker in self.brokers.values():
            broker.wait_ended()

    def kill(self) -> None:
        """SIGKILL to all of them at once."""
        for broker in self.brokers.values():
            broker._send(signal.SIGKILL)
        for broker in self.brokers.values():
            broker.wait_ended()

    def complaints(self) -> dict[int, list[str]]:
        """Return what each one's latest process has logged at WARN and above."""
        return {broker_id: broker.complaints() for broker_id, broker in self.brokers.items()}


def settings_as_kafkas(cluster: LocalCluster, broker_id: int) -> dict[str, str]:
    """Return a broker's settings that Kafka knows too, by profile and ``--set``."""
    given = PROFILES[cluster.file.profile] | settings_of(broker_id, cluster.file.settings)
    given = {"auto.create.topics.enable": "false"} | given
    return {name: value for name, value in given.items() if not name.startswith(("lab.", "replica.truncation"))}
