"""Apache Kafka's side: version 3.9 in ZooKeeper mode, three brokers by default, Kafka's tools, from Maven.

Where Maven or the network is missing, ``Unavailable`` says so and the runner prints our figures alone. The JVM options
are taken from Kafka's own start scripts.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from fetched import Unavailable
from jars import KAFKA, broker_jars
from measure import Latency, Workload
from perf_tools import COMMON_JVM, PerfTools

from tidegauge.java import java_program
from tidegauge_lab.local.broker_settings import settings_of

VERSION = KAFKA
BROKER_JVM = (*COMMON_JVM, "-Xmx1G", "-Xms1G")
READY_SECONDS = 60
ASK_SECONDS = 2.0


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Kafka:
    """Their side; see ``measure.BrokerSide``.

    Args:
        directory: parent of its own directory.
        settings: of the brokers, beside what they need.
        brokers: how many.
        release: of the brokers; the tools are always of ``VERSION``.
    """

    release = VERSION

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        release: str | None = None,
    ) -> None:
        self.release = release or self.release
        self.name = f"Apache Kafka {self.release}"
        self._directory = directory / "kafka"
        self._settings = dict(settings or {})
        self._tools = PerfTools()
        self._classpath = self._tools.classpath if self.release == VERSION else f"{broker_jars(self.release)}/*"
        self._zookeeper_port = free_port()
        self._ports = [free_port() for _ in range(brokers)]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def use(self, settings: Mapping[str, str]) -> None:
        """Take other settings, before the start; ``1:broker.rack`` is broker 1's alone."""
        self._settings = dict(settings)

    def _start(self, name: str, main: str, config: dict[str, str]) -> None:
        path = self._directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        command = [java_program(), *BROKER_JVM, "-cp", self._classpath, main, str(path)]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _start_broker(self, number: int) -> None:
        self._start(
            f"broker-{number}",
            "kafka.Kafka",
            {
                "broker.id": str(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[number]}",
                "zookeeper.connect": self.zookeeper(),
                "zookeeper.session.timeout.ms": "4000",
                "log.dirs": str(self._directory / f"data-{number}"),
                "offsets.topic.replication.factor": "1",
                "auto.create.topics.enable": "false",
                **settings_of(number, self._settings),
            },
        )

    def start(self) -> None:
        """As ``BrokerSide``."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._start(
            "zookeeper",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            {
                "dataDir": str(self._directory / "zookeeper"),
                "clientPort": str(self._zookeeper_port),
                "clientPortAddress": "127.0.0.1",
                "tickTime": "2000",
                "admin.enableServer": "false",
                "maxClientCnxns": "0",
            },
        )
        wait_for(self._zookeeper_port)
        for number in range(len(self._ports)):
            self._start_broker(number)
        for port in self._ports:
            wait_for(port)
        asyncio.run(self._first_record())

    async def _first_record(self) -> None:
        await self._create("first", 1, len(self._ports))
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            await producer.send_and_wait("first", b"x")

    async def _create(self, topic: str, partitions: int, replicas: int = 3) -> None:
        """By a client that needs no start-up of its own; again until all brokers are there."""
        deadline = time.monotonic() + READY_SECONDS
        while (problem := await self._refusal(NewTopic(topic, partitions, replicas))) is not None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} could not be created: {problem}")
            await asyncio.sleep(0.05)

    async def _refusal(self, topic: NewTopic) -> str | None:
        """Why a topic can't be created now; None when it is.

        A client of its own each time: the library asks for metadata when it starts, and trips over a cluster without a
        controller.
        """
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            response: Any = await admin.create_topics([topic])
        except KafkaError as error:
            return str(error)
        except AttributeError:
            return "there is no controller yet"
        finally:
            await admin.close()
        return None if response.topic_errors[0][1] == 0 else str(response.topic_errors[0])

    async def _delete(self, topic: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.delete_topics([topic])
        finally:
            await admin.close()

    def stop(self) -> None:
        """As ``BrokerSide``."""
        brokers = [process for name, process in self._processes.items() if name.startswith("broker")]
        for together in (brokers, [process for process in self._processes.values() if process not in brokers]):
            for process in together:  # a broker can't hand its leaders over once ZooKeeper or the quorum is stopped
                process.send_signal(signal.SIGTERM)
            for process in together:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def pids(self) -> dict[int, int]:
        """As ``BrokerSide``."""
        brokers = {number: self._processes[f"broker-{number}"] for number in range(len(self._ports))}
        return {number: process.pid for number, process in brokers.items() if process.poll() is None}

    def every_pid(self) -> list[int]:
        """As ``BrokerSide``."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def zookeeper(self) -> str:
        """Return ZooKeeper's address."""
        return f"127.0.0.1:{self._zookeeper_port}"

    def create(self, topic: str, partitions: int, replicas: int = 3) -> None:
        """As ``BrokerSide``."""
        asyncio.run(self._create(topic, partitions, replicas))

    def delete(self, topic: str) -> None:
        """As ``BrokerSide``."""
        asyncio.run(self._delete(topic))

    @property
    def ports(self) -> list[int]:
        """Return the brokers' ports, by id."""
        return list(self._ports)

    @property
    def kafka_bootstrap(self) -> str:
        """Return the brokers' addresses."""
        return self.bootstrap

    def process(self, node_id: int) -> subprocess.Popen[bytes]:
        """Return the process of a broker."""
        return self._processes[f"broker-{node_id}"]

    def tool(self, main: str, *arguments: str) -> str:
        """Return what one of Kafka's command line tools prints.

        Raises:
            RuntimeError: it failed.
        """
        return self._tools.run(main, *arguments)

    def produce(self, topic: str, workload: Workload) -> float:
        """As ``BrokerSide``, by producer-perf-test."""
        return self._tools.produce(self.bootstrap, topic, workload)

    def produce_together(self, topic: str, workload: Workload, producers: int) -> float:
        """As ``BrokerSide``."""
        with ThreadPoolExecutor(producers) as pool:
            return sum(pool.map(lambda _: self.produce(topic, workload), range(producers)))

    def consume(self, topic: str, workload: Workload) -> float:
        """As ``BrokerSide``, by consumer-perf-test: its rate without the group's rebalance."""
        return self._tools.consume(self.bootstrap, topic, workload)

    def latency(self, topic: str, workload: Workload, rate: float) -> Latency:
        """As ``BrokerSide``, by producer-perf-test."""
        return self._tools.latency(self.bootstrap, topic, workload, rate)

    def active_controller(self) -> int:
        """As ``BrokerSide``."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        with contextlib.suppress(KafkaException):
            return admin.list_topics(timeout=ASK_SECONDS).controller_id
        return -1

    def kill(self, node_id: int) -> None:
        """As ``BrokerSide``."""
        process = self.process(node_id)
        process.kill()
        process.wait()

    def restart(self, node_id: int) -> None:
        """As ``BrokerSide``."""
        self._start_broker(node_id)


def wait_for(port: int) -> None:
    """Wait until something listens on a port of 127.0.0.1.

    Raises:
        Unavailable: nothing does within ``READY_SECONDS``.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            raise Unavailable(f"nothing listens on port {port} after {READY_SECONDS} s")
        time.sleep(0.02)
