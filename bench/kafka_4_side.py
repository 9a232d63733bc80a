"""Apache Kafka's side in KRaft mode: three brokers on three controllers of their own, from Maven.

The directories are formatted by ``tidegauge format``, which writes what Kafka's own tool writes: one JVM less for each
node. Timers are Kafka's, but for the broker session, which is as long as on the other sides.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import subprocess
from collections.abc import Mapping
from pathlib import Path

from jars import KAFKA_4
from kafka_side import ASK_SECONDS, Kafka, free_port, wait_for

from tidegauge.errors import TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge_broker.server.quorum.format_verb import format_storage
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_lab.local.broker_settings import settings_of

SETTINGS = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}
"""Of every side in KRaft mode: the session is as long as the other sides' with ZooKeeper."""
CLUSTER_ID = "pQKNjKG6SIW1R46E3fVjJA"
FIRST_CONTROLLER = 3000
CONTROLLERS = 3


class Kafka4(Kafka):
    """Their side in KRaft mode; see ``Kafka``."""

    release = KAFKA_4

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        release: str | None = None,
    ) -> None:
        super().__init__(directory, SETTINGS | dict(settings or {}), brokers=brokers, release=release)
        self._directory = directory / "kafka-4"
        self._controller_ports = [free_port() for _ in range(CONTROLLERS)]

    @property
    def _controllers(self) -> dict[int, str]:
        return {FIRST_CONTROLLER + at: f"127.0.0.1:{port}" for at, port in enumerate(self._controller_ports)}

    def _formatted(
        self, name: str, node: Mapping[str, str], settings: Mapping[str, str], *voters: str
    ) -> dict[str, str]:
        """Return a node's settings once its directory is formatted."""
        config = {
            **node,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(self._controllers.values()),
            "log.dirs": str(self._directory / f"data-{name}"),
            "offsets.topic.replication.factor": "1",
            **settings,
        }
        path = self._directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        levels = ["--release-version", ".".join(self.release.split(".")[:2])]
        arguments = ["--ignore-formatted", "-t", CLUSTER_ID, "-c", str(path), *levels, *voters]
        with contextlib.redirect_stdout(io.StringIO()):
            format_storage.main(arguments, standalone_mode=False)
        return config

    def _start_controller(self, node_id: int) -> None:
        voters = ",".join(
            f"{one}@{address}:{uuid_text(bytes([0x11, one % 256]) * 8)}" for one, address in self._controllers.items()
        )
        name = f"controller-{node_id}"
        node = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://{self._controllers[node_id]}",
        }
        config = self._formatted(name, node, settings_of(node_id, self._settings), "--initial-controllers", voters)
        self._start(name, "kafka.Kafka", config)

    def _start_broker(self, number: int) -> None:
        name = f"broker-{number}"
        node = {
            "process.roles": "broker",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[number]}",
            "auto.create.topics.enable": "false",
        }
        config = self._formatted(name, node, settings_of(number, self._settings), "--no-initial-controllers")
        self._start(name, "kafka.Kafka", config)

    def start(self) -> None:
        """As ``BrokerSide``."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for node_id in self._controllers:
            self._start_controller(node_id)
        for number in range(len(self._ports)):
            self._start_broker(number)
        for port in self._ports:
            wait_for(port)
        asyncio.run(self._first_record())

    def process(self, node_id: int) -> subprocess.Popen[bytes]:
        """Return the process of a broker or a controller."""
        return self._processes[f"controller-{node_id}" if node_id in self._controllers else f"broker-{node_id}"]

    def active_controller(self) -> int:
        """As ``BrokerSide``."""

        async def leader() -> int:
            async with QuorumAdmin(list(self._controllers.values()), ASK_SECONDS) as admin:
                return (await admin.describe()).leader_id

        with contextlib.suppress(TidegaugeError):
            return asyncio.run(leader())
        return -1

    def restart(self, node_id: int) -> None:
        """As ``BrokerSide``."""
        if node_id in self._controllers:
            self._start_controller(node_id)
        else:
            self._start_broker(node_id)
