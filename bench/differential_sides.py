"""The two clusters of the differential run, driven alike: Apache Kafka 3.9 in ZooKeeper mode, and Tidegauge.

Both get the same settings (``SHARED``), brokers 0 to 2 on 127.0.0.1, one log directory each, and a ZooKeeper of their
own. Commands come from each side's own command line; batches are made by the same codec, with times that are given.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import kafka_side
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from jars import kafka_jars
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.java import java_program
from tidegauge_client import Producer
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster

BROKERS = (0, 1, 2)
SHARED = {
    "zookeeper.session.timeout.ms": "4000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "controlled.shutdown.retry.backoff.ms": "500",
    "replica.lag.time.max.ms": "10000",
    "log.retention.ms": "-1",
}
"""On both sides. Sessions and pauses are short so that the run is; leaders move only when the script says so.
Retention by time is off: the script's records have times of long ago."""
OURS = {"controller.failover.trusts.restarted.brokers": "true"}
"""On our side alone: Kafka's rule instead of the safer one (docs/fidelity.md), so that epochs can be compared."""
READY_SECONDS = 90.0
TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))
LINGER_MS = 100
TOOL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256M")
MAIN_CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "elect": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
}
OUR_VERBS = {
    ("topics", "--create"): "create-topic",
    ("topics", "--describe"): "describe-topic",
    ("topics", "--list"): "list-topics",
    ("topics", "--alter"): "alter-topic",
    ("topics", "--delete"): "delete-topic",
    ("configs", "--alter"): "alter-config",
    ("configs", "--describe"): "describe-config",
    ("elect", ""): "elect-leaders",
    ("reassign", ""): "reassign-partitions",
    ("delete-records", ""): "delete-records",
    ("get-offsets", ""): "get-offsets",
}
"""Kafka's tool and what it is to do, and the verb of ours. The other options are the same on both sides."""


class Said(NamedTuple):
    """The output of a command, and whether it succeeded."""

    ok: bool
    stdout: str
    stderr: str


class Entry(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


class Batch(NamedTuple):
    """Records that are written as one batch, by an idempotent producer or a plain one."""

    topic: str
    partition: int
    entries: Sequence[Entry]
    compression: str = "none"


class Side(Protocol):
    """One of the two."""

    name: str
    zookeeper: str
    tool_jars: Path | None

    def begin(self) -> None: ...
    def start(self, broker_id: int) -> None: ...
    def stop(self, broker_id: int) -> None: ...
    def kill(self, broker_id: int) -> None: ...
    def end(self) -> None: ...
    def directory(self, broker_id: int) -> Path: ...
    def command(self, tool: str, *options: str) -> Said: ...
    def write(self, batches: Sequence[Batch], *, acks: str = "all", idempotent: bool = True) -> list[str]: ...


class TheirSide:
    """Apache Kafka."""

    name = "Kafka"

    def __init__(self, directory: Path) -> None:
        self._kafka = _Oracle(directory)
        self.zookeeper = self._kafka.zookeeper()
        self.tool_jars: Path | None = kafka_jars()

    def begin(self) -> None:
        self._kafka.start_zookeeper()

    def start(self, broker_id: int) -> None:
        self._kafka.start_one(broker_id)

    def stop(self, broker_id: int) -> None:
        self._kafka.end_one(broker_id, signal.SIGTERM)

    def kill(self, broker_id: int) -> None:
        self._kafka.end_one(broker_id, signal.SIGKILL)

    def end(self) -> None:
        self._kafka.stop()

    def directory(self, broker_id: int) -> Path:
        return self._kafka.data(broker_id)

    def command(self, tool: str, *options: str) -> Said:
        where = ["--bootstrap-server", self._kafka.bootstrap]
        command = [java_program(), *TOOL_JVM, "-cp", f"{self.tool_jars}/*", MAIN_CLASSES[tool], *where, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return Said(done.returncode == 0, done.stdout, done.stderr)

    def write(self, batches: Sequence[Batch], *, acks: str = "all", idempotent: bool = True) -> list[str]:
        return asyncio.run(self._write(batches, acks, idempotent))

    async def _write(self, batches: Sequence[Batch], acks: str, idempotent: bool) -> list[str]:
        reported: list[str] = []
        for compression, group in _by_compression(batches):
            async with AIOKafkaProducer(
                bootstrap_servers=self._kafka.bootstrap,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                compression_type=None if compression == "none" else compression,
            ) as producer:
                reported += [await self._write_one(producer, batch) for batch in group]
        return reported

    async def _write_one(self, producer: Any, batch: Batch) -> str:
        builder = producer.create_batch()
        for entry in batch.entries:
            builder.append(key=entry.key, value=entry.value, timestamp=entry.timestamp_ms, headers=list(entry.headers))
        try:
            response = await (await producer.send_batch(builder, batch.topic, partition=batch.partition))
        except KafkaError as error:
            return type(error).__name__
        return f"{batch.topic}-{batch.partition}@{response.offset}"


class _Oracle(kafka_side.Kafka):
    """As the benchmark's, with the settings of the differential run, and each process by itself."""

    def data(self, broker_id: int) -> Path:
        return self._directory / f"data-{broker_id}"

    def start_zookeeper(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        config = {
            "dataDir": str(self._directory / "zookeeper"),
            "clientPort": str(self._zookeeper_port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "500",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
        }
        self._start("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
        kafka_side.wait_for(self._zookeeper_port)

    def start_one(self, broker_id: int) -> None:
        config = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[broker_id]}",
            "zookeeper.connect": self.zookeeper(),
            "log.dirs": str(self.data(broker_id)),
        }
        self._start(f"broker-{broker_id}", "kafka.Kafka", config | SHARED)
        kafka_side.wait_for(self._ports[broker_id])

    def end_one(self, broker_id: int, how: signal.Signals) -> None:
        process = self._processes[f"broker-{broker_id}"]
        process.send_signal(how)
        process.wait(60)


class OurSide:
    """Tidegauge."""

    name = "Tidegauge"

    def __init__(self, directory: Path, tool_jars: Path | None) -> None:
        self._cluster = LocalCluster.create(
            directory / "tidegauge", len(BROKERS), profile="kafka", settings=SHARED | OURS
        )
        self.zookeeper = self._cluster.file.zookeeper_address
        self.tool_jars = tool_jars
        self._runner = asyncio.Runner()

    def begin(self) -> None:
        self._cluster.start(ZOOKEEPER)

    def start(self, broker_id: int) -> None:
        self._cluster.start(broker_id)

    def stop(self, broker_id: int) -> None:
        self._cluster.stop(broker_id)

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def end(self) -> None:
        self._cluster.down()
        self._runner.close()

    def directory(self, broker_id: int) -> Path:
        return layout.broker_data(self._cluster.directory, broker_id)

    def command(self, tool: str, *options: str) -> Said:
        action = next((option for option in options if (tool, option) in OUR_VERBS), "")
        rest = [option for option in options if option != action]
        if "--topic" in rest and tool in {"topics", "get-offsets"}:
            rest.remove("--topic")
        verb = OUR_VERBS[tool, action]
        command = [TIDEGAUGE, verb, *rest, "--dir", str(self._cluster.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return Said(done.returncode == 0, done.stdout, done.stderr)

    def write(self, batches: Sequence[Batch], *, acks: str = "all", idempotent: bool = True) -> list[str]:
        return self._runner.run(self._write(batches, acks, idempotent))

    async def _write(self, batches: Sequence[Batch], acks: str, idempotent: bool) -> list[str]:
        reported: list[str] = []
        for compression, group in _by_compression(batches):
            async with Producer(
                self._cluster.bootstrap_servers,
                acks="all" if acks == "all" else 1,
                idempotence=idempotent,
                compression=compression,
                linger_ms=LINGER_MS,
            ) as producer:
                reported += [await self._write_one(producer, batch) for batch in group]
        return reported

    async def _write_one(self, producer: Producer, batch: Batch) -> str:
        sent = [
            await producer.send(
                batch.topic,
                entry.value,
                entry.key,
                partition=batch.partition,
                timestamp_ms=entry.timestamp_ms,
                headers=entry.headers,
            )
            for entry in batch.entries
        ]
        try:
            responses = await asyncio.gather(*sent)
        except TidegaugeError as error:
            return str(error.code)
        return f"{batch.topic}-{batch.partition}@{responses[0].offset}"


def _by_compression(batches: Sequence[Batch]) -> list[tuple[Any, list[Batch]]]:
    """Group the batches in order, neighbours of one codec together: a producer has one codec."""
    groups: list[tuple[str, list[Batch]]] = []
    for batch in batches:
        if not groups or groups[-1][0] != batch.compression:
            groups.append((batch.compression, []))
        groups[-1][1].append(batch)
    return groups


def settle(look: Callable[[], Mapping[str, str]], same_for: int = 4) -> dict[str, str]:
    """Look repeatedly until this number of looks in a row, half a second apart, were the same."""
    seen: list[Mapping[str, str]] = []
    next_look = time.monotonic()

    def still() -> bool:
        nonlocal next_look
        if time.monotonic() < next_look:
            return False
        next_look = time.monotonic() + 0.5
        now = look()
        if seen and seen[-1] != now:
            seen.clear()
        seen.append(now)
        return len(seen) > same_for

    until(still, READY_SECONDS, "the cluster settles")
    return dict(seen[-1])
