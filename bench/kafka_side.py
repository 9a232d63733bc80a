"""Apache Kafka's side: version 3.9 in ZooKeeper mode, three brokers, Kafka's own tools, from Maven Central.

Everything is resolved into a cache folder with ``mvn dependency:copy-dependencies``. Where Maven or the network is
missing, ``Unavailable`` says so and the runner prints our figures alone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from measure import Figures, Side, Workload, resident_bytes

VERSION = "3.9.1"
CACHE = Path(os.environ.get("TIDEGAUGE_BENCH_CACHE", "~/.cache/tidegauge-bench")).expanduser()
HEAP = "-Xmx512m"
READY_SECONDS = 60
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{v}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{v}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


class Unavailable(Exception):
    """Kafka can't be had here; the text says why."""


def jars() -> Path:
    """The folder with Kafka's jars, resolved once.

    Raises:
        Unavailable: no Maven, or it can't reach its repository.
    """
    folder = CACHE / f"kafka-{VERSION}"
    if any(folder.glob(f"kafka_2.13-{VERSION}.jar")):
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven (mvn) is not installed")
    project = CACHE / "project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "pom.xml").write_text(_POM.format(v=VERSION))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable("Maven could not resolve Kafka: " + (done.stdout + done.stderr).strip()[-300:])
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Kafka:
    """ZooKeeper and three brokers of Apache Kafka."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.classpath = f"{jars()}/*"
        self.zookeeper_port = _free_port()
        self.ports = [_free_port() for _ in range(3)]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.processes: list[subprocess.Popen[bytes]] = []

    def _start(self, name: str, main: str, config: dict[str, str]) -> subprocess.Popen[bytes]:
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        command = ["java", HEAP, "-XX:+UseG1GC", "-cp", self.classpath, main, str(path)]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        return process

    def start(self) -> None:
        """Start all; returns when the brokers' ports are open."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start(
            "zookeeper",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            {
                "dataDir": str(self.folder / "zookeeper"),
                "clientPort": str(self.zookeeper_port),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
                "maxClientCnxns": "0",
            },
        )
        _wait_for(self.zookeeper_port)
        for number, port in enumerate(self.ports):
            self._start(
                f"broker-{number}",
                "kafka.Kafka",
                {
                    "broker.id": str(number),
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
                    "log.dirs": str(self.folder / f"data-{number}"),
                    "offsets.topic.replication.factor": "1",
                    "auto.create.topics.enable": "false",
                },
            )
        for port in self.ports:
            _wait_for(port)

    def tool(self, main: str, *arguments: str) -> str:
        """Run one of Kafka's tools; its stdout."""
        command = ["java", HEAP, "-cp", self.classpath, main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"{main} failed: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done.stdout

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with replication factor 3, as soon as three brokers are there."""
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self.bootstrap, "--create", "--topic", topic),
            *("--partitions", str(partitions), "--replication-factor", "3"),
        )

    def produce(self, topic: str, records: int, size: int, *properties: str, throughput: int = -1) -> str:
        """Kafka's producer-perf-test; its summary line."""
        return self.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", str(throughput), "--producer-props", f"bootstrap.servers={self.bootstrap}", *properties),
        ).splitlines()[-1]

    def consume(self, topic: str, records: int) -> float:
        """Kafka's consumer-perf-test; records per second of fetching."""
        output = self.tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", self.bootstrap, "--topic", topic, "--messages", str(records), "--timeout", "60000"),
        )
        header, values = (line.split(", ") for line in output.splitlines() if ", " in line)
        return float(values[header.index("fetch.nMsg.sec")])

    def stop(self) -> None:
        """End all, gently first."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            raise Unavailable(f"nothing listens on port {port} after {READY_SECONDS} s")
        time.sleep(0.05)


def _run(kafka: Kafka, workload: Workload, number: int) -> Figures:
    topic = f"bench-{number}"
    kafka.create(topic, workload.partitions)
    fast = kafka.produce(
        topic, workload.records, workload.record_bytes, f"acks={workload.acks}", "linger.ms=5", "batch.size=65536"
    )
    consumed = kafka.consume(topic, workload.records)
    slow = kafka.produce(topic, 500, workload.record_bytes, f"acks={workload.acks}", throughput=200)
    rate = re.search(r"([\d.]+) records/sec", fast)
    p50 = re.search(r"([\d.]+) ms 50th", slow)
    p99 = re.search(r"([\d.]+) ms 99th", slow)
    if rate is None or p50 is None or p99 is None:
        raise RuntimeError(f"unexpected output: {fast} / {slow}")
    return Figures(float(rate[1]), consumed, float(p50[1]), float(p99[1]))


def run(folder: Path, cells: list[Workload]) -> Side:
    """All workloads, one after the other, on one cluster."""
    side = Side(f"Apache Kafka {VERSION}")
    began = time.perf_counter()
    kafka = Kafka(folder / "kafka")
    try:
        kafka.start()
        kafka.create("first", 1)
        kafka.produce("first", 1, 1, "acks=all")
        side.start_up_seconds = time.perf_counter() - began
        for number, workload in enumerate(cells):
            side.figures[workload.name] = _run(kafka, workload, number)
        side.memory_bytes = resident_bytes([process.pid for process in kafka.processes[1:]])
    finally:
        kafka.stop()
    return side
