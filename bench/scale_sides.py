"""The two sides of ``scale.py``: three brokers with one topic of many partitions, Tidegauge's and Apache Kafka's.

A broker is asked for its own metadata; faults are done to its process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest
from kafka_side import Kafka

from tidegauge.errors import TidegaugeError
from tidegauge_client import Admin, Producer
from tidegauge_lab.local.cluster import LocalCluster

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
TOPIC = "scale"
BROKERS = 3
SETTINGS = {"auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": "4000"}
LIMIT_MS = 600_000
STOP_SECONDS = 300

# A broker that was killed is asked until it is back, and the library would say each time that it is not there.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class Seen(NamedTuple):
    """A partition in some broker's metadata: its leader, None without one, and how many are in sync."""

    leader: int | None
    in_sync: int


class Side(Protocol):
    """A cluster of three brokers, known by their ids."""

    name: str
    broker_ids: Sequence[int]

    def start(self) -> None:
        """Start all of it."""

    def stop(self) -> None:
        """End all of it, and forget its data."""

    async def connect(self) -> None:
        """Open what asks."""

    async def disconnect(self) -> None:
        """Close what asks."""

    async def create(self, partitions: int) -> None:
        """Create the topic with three replicas; return with the controller's response."""

    async def delete(self) -> None:
        """Delete the topic; the same."""

    async def seen(self, broker_id: int) -> list[Seen] | None:
        """Return the topic's partitions in this broker's metadata; None: it did not respond."""
        ...

    async def controller(self) -> int:
        """Return the broker that is controller."""
        ...

    async def produce(self, records: int) -> float:
        """One record at a time to all replicas of one partition: the median, in ms."""
        ...

    def describe(self) -> None:
        """Run the command line's description of the topic."""

    def pids(self) -> dict[int, int]:
        """Living brokers' process ids."""
        ...

    def kill(self, broker_id: int) -> None:
        """SIGKILL."""

    def restart(self, broker_id: int) -> None:
        """Start it again."""

    def shut_down(self, broker_id: int) -> None:
        """Stop a broker with a controlled shutdown; return when the process has ended."""


class TidegaugeScale:
    """Our side."""

    name = "Tidegauge"

    def __init__(self, directory: Path, base_port: int | None) -> None:
        self.cluster = LocalCluster.create(
            directory / "cluster", BROKERS, profile="kafka", settings=SETTINGS, base_port=base_port
        )
        self._addresses = {entry.id: entry.address for entry in self.cluster.file.brokers}
        self.broker_ids: Sequence[int] = list(self._addresses)
        self._admin: Admin | None = None

    @property
    def _asked(self) -> Admin:
        assert self._admin is not None
        return self._admin

    def start(self) -> None:
        """As ``Side``."""
        self.cluster.up()

    def stop(self) -> None:
        """As ``Side``."""
        self.cluster.down(purge=True)

    async def connect(self) -> None:
        """As ``Side``."""
        self._admin = Admin(self.cluster.bootstrap_servers)
        await self._admin.start()

    async def disconnect(self) -> None:
        """As ``Side``."""
        if self._admin is not None:
            await self._admin.stop()

    async def create(self, partitions: int) -> None:
        """As ``Side``."""
        await self._asked.create_topic(TOPIC, partitions=partitions, replication_factor=BROKERS, timeout_ms=LIMIT_MS)

    async def delete(self) -> None:
        """As ``Side``."""
        await self._asked.delete_topic(TOPIC, timeout_ms=LIMIT_MS)

    async def seen(self, broker_id: int) -> list[Seen] | None:
        """As ``Side``."""
        try:
            metadata = await self._asked.metadata_of(self._addresses[broker_id], [TOPIC])
        except TidegaugeError:
            return None
        topic = metadata.topics.get(TOPIC)
        found = [] if topic is None else topic.partitions.values()
        return [Seen(partition.leader_id, len(partition.isr)) for partition in found]

    async def controller(self) -> int:
        """As ``Side``."""
        return int(self.cluster.status()["controller"]["broker"])

    async def produce(self, records: int) -> float:
        """As ``Side``."""
        found = []
        async with Producer(self.cluster.bootstrap_servers, acks="all") as producer:
            for number in range(records):
                began = time.perf_counter()
                await (await producer.send(TOPIC, b"%d" % number, partition=0))
                found.append((time.perf_counter() - began) * 1_000)
        return statistics.median(found)

    def describe(self) -> None:
        """As ``Side``."""
        command = [TIDEGAUGE, "describe-topic", TOPIC, "--dir", str(self.cluster.directory)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def pids(self) -> dict[int, int]:
        """As ``Side``."""
        found = {broker_id: self.cluster.pid_of(broker_id) for broker_id in self.broker_ids}
        return {broker_id: pid for broker_id, pid in found.items() if pid is not None}

    def kill(self, broker_id: int) -> None:
        """As ``Side``."""
        self.cluster.kill(broker_id)

    def restart(self, broker_id: int) -> None:
        """As ``Side``."""
        self.cluster.start(broker_id, limit_seconds=LIMIT_MS / 1_000)

    def shut_down(self, broker_id: int) -> None:
        """As ``Side``."""
        self.cluster.stop(broker_id, limit_seconds=STOP_SECONDS)


class KafkaScale:
    """Apache Kafka's side, asked by aiokafka's admin client."""

    def __init__(self, directory: Path) -> None:
        self._kafka = Kafka(directory, {"auto.leader.rebalance.enable": "false"})
        self.name = self._kafka.name
        self.broker_ids: Sequence[int] = list(range(BROKERS))
        self._admin: Any = None

    def start(self) -> None:
        """As ``Side``."""
        self._kafka.start()

    def stop(self) -> None:
        """As ``Side``."""
        self._kafka.stop()

    async def connect(self) -> None:
        """As ``Side``."""
        self._admin = AIOKafkaAdminClient(bootstrap_servers=self._kafka.bootstrap, request_timeout_ms=LIMIT_MS)
        await self._admin.start()

    async def disconnect(self) -> None:
        """As ``Side``."""
        if self._admin is not None:
            await self._admin.close()

    async def create(self, partitions: int) -> None:
        """As ``Side``; the client gives up sooner than the cluster, which goes on."""
        try:
            await self._admin.create_topics([NewTopic(TOPIC, partitions, BROKERS)], timeout_ms=LIMIT_MS)
        except KafkaError as problem:
            print(f"{self.name}: {problem!r}; waiting all the same", file=sys.stderr)

    async def delete(self) -> None:
        """As ``Side``."""
        try:
            await self._admin.delete_topics([TOPIC], timeout_ms=LIMIT_MS)
        except KafkaError as problem:
            print(f"{self.name}: {problem!r}; waiting all the same", file=sys.stderr)

    async def _metadata(self, broker_id: int) -> dict[str, Any] | None:
        try:
            response: Any = await asyncio.wait_for(
                self._admin._client.send(broker_id, MetadataRequest([TOPIC])),  # noqa: SLF001 - no public way to one broker
                10,
            )
        except (KafkaError, TimeoutError, OSError):
            return None
        found: dict[str, Any] = response.to_object()
        return found

    async def seen(self, broker_id: int) -> list[Seen] | None:
        """As ``Side``."""
        metadata = await self._metadata(broker_id)
        if metadata is None:
            return None
        partitions = [one for topic in metadata["topics"] for one in topic["partitions"]]
        return [Seen(one["leader"] if one["leader"] >= 0 else None, len(one["isr"])) for one in partitions]

    async def controller(self) -> int:
        """As ``Side``."""
        for broker_id in self._kafka.pids():
            metadata = await self._metadata(broker_id)
            if metadata is not None and metadata["controller_id"] in self._kafka.pids():
                return int(metadata["controller_id"])
        raise RuntimeError("no broker knows a live controller")

    async def produce(self, records: int) -> float:
        """As ``Side``."""
        found = []
        async with AIOKafkaProducer(bootstrap_servers=self._kafka.bootstrap, acks="all") as producer:
            for number in range(records):
                began = time.perf_counter()
                await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)
                found.append((time.perf_counter() - began) * 1_000)
        return statistics.median(found)

    def describe(self) -> None:
        """As ``Side``, by kafka-topics."""
        self._kafka.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self._kafka.bootstrap, "--describe", "--topic", TOPIC),
        )

    def pids(self) -> dict[int, int]:
        """As ``Side``."""
        return self._kafka.pids()

    def kill(self, broker_id: int) -> None:
        """As ``Side``."""
        self._kafka.kill(broker_id)

    def restart(self, broker_id: int) -> None:
        """As ``Side``."""
        self._kafka.restart(broker_id)

    def shut_down(self, broker_id: int) -> None:
        """As ``Side``."""
        process = self._kafka.process(broker_id)
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)
