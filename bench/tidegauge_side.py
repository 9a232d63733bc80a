"""Tidegauge's side: a cluster of three brokers of its own, our asyncio client.

Records have no key and name no partition, as with Kafka's own tool: each producer's partitioner decides (KIP-794).
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Literal

import kafka_4_side
from measure import Latency, Workload, latency_of

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import Role, RoleKind

LINGER_MS = 5
BATCH_BYTES = 65_536
SETTINGS = {"zookeeper": {"zookeeper.session.timeout.ms": "4000"}, "kraft": kafka_4_side.SETTINGS}
"""By mode."""
AHEAD_SECONDS = 0.002
KAFKA_PORTS_ABOVE = 4
"""The first port for Kafka's clients above the one for gRPC, if the latter is given."""


def _acks(workload: Workload) -> Literal["all", 1]:
    return 1 if workload.acks == "1" else "all"


async def _produce(bootstrap: list[str], topic: str, workload: Workload) -> float:
    value = b"x" * workload.record_bytes
    async with Producer(bootstrap, acks=_acks(workload), linger_ms=LINGER_MS, batch_size_bytes=BATCH_BYTES) as producer:
        began = time.perf_counter()
        for _ in range(workload.records):
            await producer.send(topic, value)
        await producer.flush()
        seconds = time.perf_counter() - began
        if producer.counters.failed:
            raise RuntimeError(f"{producer.counters.failed} records were not acknowledged")
    return workload.records / seconds


def _produce_alone(work: tuple[list[str], str, Workload]) -> float:
    """In a process of its own."""
    return asyncio.run(_produce(*work))


async def _consume(bootstrap: list[str], topic: str, workload: Workload) -> float:
    async with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(workload.partitions)])
        await consumer.seek_to_beginning()
        began = time.perf_counter()
        read = 0
        while read < workload.records:
            read += len(await consumer.poll(timeout_ms=1_000, max_records=100_000))
        return read / (time.perf_counter() - began)


async def _latency(bootstrap: list[str], topic: str, workload: Workload, rate: float) -> Latency:
    """Write in an open loop, as Kafka's tool does: a slow response doesn't hold the next record back."""
    value = b"x" * workload.record_bytes
    samples: list[float] = []

    def note(began: float) -> None:
        samples.append((time.perf_counter() - began) * 1_000)

    async with Producer(bootstrap, acks=_acks(workload), batch_size_bytes=BATCH_BYTES) as producer:
        start = time.perf_counter()
        for number in range(int(rate * workload.latency_seconds)):
            ahead = start + number / rate - time.perf_counter()
            if ahead > AHEAD_SECONDS:
                await asyncio.sleep(ahead)
            began = time.perf_counter()
            response = await producer.send(topic, value)
            response.add_done_callback(lambda _, began=began: note(began))
        await producer.flush()
    return latency_of(samples)


async def _create(bootstrap: list[str], topic: str, partitions: int, replicas: int = 3) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=partitions, replication_factor=replicas)
        await admin.wait_for_topic(topic)


async def _delete(bootstrap: list[str], topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.delete_topic(topic)


async def _first_record(bootstrap: list[str]) -> None:
    await _create(bootstrap, "first", 1)
    async with Producer(bootstrap) as producer:
        await (await producer.send("first", b"x"))


class Tidegauge:
    """Our side; see ``measure.BrokerSide``.

    Args:
        directory: parent of its own directory.
        base_port: the first port for gRPC; None: any.
        settings: of the brokers, beside the timeout of their sessions.
        mode: ``zookeeper`` or ``kraft``.
    """

    name = "Tidegauge"

    def __init__(
        self,
        directory: Path,
        base_port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        mode: str = "zookeeper",
    ) -> None:
        self._mode = mode
        if mode == "kraft":
            self.name = "Tidegauge, KRaft"
        self._directory = directory / f"tidegauge-{mode}"
        self._settings = SETTINGS[mode] | dict(settings or {})
        self._base_port = base_port
        self._cluster: LocalCluster | None = None
        self._runner = asyncio.Runner()

    @property
    def cluster(self) -> LocalCluster:
        """The cluster, once started."""
        if self._cluster is None:
            raise RuntimeError("not started")
        return self._cluster

    def start(self) -> None:
        """As ``BrokerSide``."""
        kafka_port = None if self._base_port is None else self._base_port + KAFKA_PORTS_ABOVE
        self._cluster = LocalCluster.create(
            self._directory,
            3,
            profile="kafka",
            mode=self._mode,
            settings=self._settings,
            base_port=self._base_port,
            kafka_port=kafka_port,
        )
        self._cluster.up()
        self._runner.run(_first_record(self.cluster.bootstrap_servers))

    def stop(self) -> None:
        """As ``BrokerSide``."""
        if self._cluster is not None:
            self._cluster.down(purge=True)
        self._runner.close()

    def pids(self) -> dict[int, int]:
        """As ``BrokerSide``."""
        found = {entry.id: self.cluster.pid_of(entry.id) for entry in self.cluster.file.brokers}
        return {broker_id: pid for broker_id, pid in found.items() if pid is not None}

    @property
    def kafka_bootstrap(self) -> str:
        """Return the brokers' addresses for Kafka's clients."""
        return ",".join(self.cluster.kafka_bootstrap_servers)

    def every_pid(self) -> list[int]:
        """As ``BrokerSide``."""
        found = [process.pid for process in self.cluster.processes().values()]
        return [pid for pid in found if pid is not None]

    def create(self, topic: str, partitions: int, replicas: int = 3) -> None:
        """As ``BrokerSide``."""
        self._runner.run(_create(self.cluster.bootstrap_servers, topic, partitions, replicas))

    def delete(self, topic: str) -> None:
        """As ``BrokerSide``."""
        self._runner.run(_delete(self.cluster.bootstrap_servers, topic))

    def produce(self, topic: str, workload: Workload) -> float:
        """As ``BrokerSide``."""
        return self._runner.run(_produce(self.cluster.bootstrap_servers, topic, workload))

    def produce_together(self, topic: str, workload: Workload, producers: int) -> float:
        """As ``BrokerSide``."""
        with ProcessPoolExecutor(producers, mp_context=multiprocessing.get_context("spawn")) as pool:
            return sum(
                pool.map(_produce_alone, [(self.cluster.bootstrap_servers, topic, workload)] * producers, chunksize=1)
            )

    def consume(self, topic: str, workload: Workload) -> float:
        """As ``BrokerSide``."""
        return self._runner.run(_consume(self.cluster.bootstrap_servers, topic, workload))

    def latency(self, topic: str, workload: Workload, rate: float) -> Latency:
        """As ``BrokerSide``."""
        return self._runner.run(_latency(self.cluster.bootstrap_servers, topic, workload, rate))

    def active_controller(self) -> int:
        """As ``BrokerSide``."""
        with contextlib.suppress(TidegaugeError):
            return self.cluster.resolve(Role(RoleKind.CONTROLLER))
        return -1

    def kill(self, node_id: int) -> None:
        """As ``BrokerSide``."""
        self.cluster.kill(node_id)

    def restart(self, node_id: int) -> None:
        """As ``BrokerSide``."""
        self.cluster.start(node_id)
