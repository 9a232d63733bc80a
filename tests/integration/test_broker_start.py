"""An obstacle to a broker's start is reported in one sentence, exit 1, and nothing on disk or in ZooKeeper changes.

The causes: a port in use, a data directory of another broker or another cluster, a locked directory, ZooKeeper
unreachable.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.waiting import until

from tidegauge.znodes import BROKER_IDS, CONTROLLER, BrokerNode, ControllerNode, broker_path
from tidegauge_controller.zookeeper.client import ZooKeeper

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


class Broker:
    """One broker process, started by the test."""

    def __init__(self, zookeeper: str, directory: Path, chroot: str, port: int) -> None:
        self.directory = directory
        self.port = port
        self.other_port = port + 1
        self.settings = {
            "broker.id": "7",
            "listeners": f"GRPC://127.0.0.1:{self.port}",
            "zookeeper.connect": f"{zookeeper}/{chroot}",
            "zookeeper.session.timeout.ms": "4000",
            "zookeeper.connection.timeout.ms": "60000",
            "log.dirs": str(directory / "data"),
        }
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *interpreter_options: str, **changes: str) -> subprocess.Popen[str]:
        settings = self.settings | {name.replace("_", "."): value for name, value in changes.items()}
        overrides = [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]
        command = [sys.executable, *interpreter_options, "-m", "tidegauge_broker.server.verb", *overrides]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def refused(self, *interpreter_options: str, **changes: str) -> str:
        """The last line of stderr of a start that must fail."""
        process = self.start(*interpreter_options, **changes)
        _, stderr = process.communicate(timeout=150)
        assert process.returncode == 1, stderr
        assert "Traceback" not in stderr
        return stderr.splitlines()[-1]

    def is_ready(self) -> bool:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            try:
                response = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service="tidegauge.ready"), timeout=2
                )
            except grpc.RpcError:
                return False
            return response.status == health_pb2.HealthCheckResponse.SERVING

    def stop(self, process: subprocess.Popen[str]) -> str:
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=150)
        assert process.returncode == 0, stderr
        return stderr

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def broker(zookeeper, tmp_path, request, next_base_port) -> Iterator[Broker]:
    chroot = f"start-{os.getpid()}-{abs(hash(request.node.name))}"
    made = Broker(zookeeper, tmp_path, chroot, next_base_port())
    yield made
    made.close()


def test_a_broker_starts_is_ready_and_stops_cleanly(broker):
    """A listener without a host is on the loopback address alone: another address of the same machine refuses."""
    process = broker.start(listeners=f"GRPC://:{broker.port}")
    until(broker.is_ready)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", broker.port), 30)
    data = broker.directory / "data"
    assert "broker.id=7" in (data / "meta.properties").read_text()
    assert not (data / ".kafka_cleanshutdown").exists()
    assert "shut down completed" in broker.stop(process)
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_directory_of_another_broker_is_refused(broker):
    process = broker.start()
    until(broker.is_ready)
    broker.stop(process)
    before = (broker.directory / "data" / "meta.properties").read_bytes()
    assert "7" in (sentence := broker.refused(broker_id="8")), sentence
    assert (broker.directory / "data" / "meta.properties").read_bytes() == before


def test_a_directory_of_another_cluster_is_refused(broker):
    process = broker.start()
    until(broker.is_ready)
    broker.stop(process)
    sentence = broker.refused(zookeeper_connect=broker.settings["zookeeper.connect"] + "-other")
    assert "cluster" in sentence.lower()


def test_a_directory_in_use_is_refused(broker):
    broker.start()
    until(broker.is_ready)
    sentence = broker.refused(broker_id="7", listeners=f"GRPC://127.0.0.1:{broker.other_port}")
    assert str(broker.directory / "data") in sentence


def test_a_port_in_use_is_refused(broker):
    """gRPC would let two servers share one port; grpc.so_reuseport=0 forbids it."""
    broker.start()
    until(broker.is_ready)
    sentence = broker.refused(broker_id="8", log_dirs=str(broker.directory / "other"))
    assert f"127.0.0.1:{broker.port}" in sentence


def test_an_address_that_another_broker_advertises_is_refused(broker):
    """KafkaServer.createBrokerInfo: clients of the one would meet the other, as with a copied compose service."""
    broker.start()
    until(broker.is_ready)
    sentence = broker.refused(
        broker_id="8",
        log_dirs=str(broker.directory / "other"),
        listeners=f"GRPC://127.0.0.1:{broker.other_port}",
        advertised_listeners=f"GRPC://127.0.0.1:{broker.port}",
    )
    assert f"Configured end points 127.0.0.1:{broker.port} in advertised listeners" in sentence
    assert "already registered by broker 7" in sentence


def test_a_zookeeper_that_does_not_respond_is_reported(broker):
    no_broker = f"127.0.0.1:{broker.other_port}"
    sentence = broker.refused(zookeeper_connect=no_broker, zookeeper_connection_timeout_ms="1500")
    assert no_broker in sentence
    assert not (broker.directory / "data").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"broker_id": "-1"}, "broker.id"),
        ({"listeners": "127.0.0.1:9"}, "PLAINTEXT://HOST:PORT"),
        ({"log_segment_bytes": "one"}, "log.segment.bytes"),
    ],
)
def test_a_wrong_setting_is_reported_before_anything_is_contacted(broker, changes, words):
    assert words in broker.refused(**changes)


def test_a_broker_refuses_to_run_without_its_assertions(broker):
    assert "python -O" in broker.refused("-O")


async def test_a_broker_started_before_its_old_session_has_ended_waits_and_says_so(broker):
    """docs/not-emulated.md: Kafka fails here; we wait for ZooKeeper to end the old session.

    The old session is the test's own, so that it ends when the test wants, however long a broker takes to start.
    """
    where = broker.settings["zookeeper.connect"]
    earlier = await ZooKeeper.connect(where, session_timeout_ms=30_000, connection_timeout_ms=30_000)
    await earlier.ensure_path(BROKER_IDS)
    node = BrokerNode(7, "127.0.0.1", broker.port, 1_700_000_000_000)
    await earlier.create(broker_path(7), node.encode(), ephemeral=True)
    process = broker.start()
    waits = "still belongs to session"
    assert await asyncio.to_thread(lambda: any(waits in line for line in process.stderr)), "it ended"
    assert not await asyncio.to_thread(broker.is_ready)
    await earlier.close()
    await asyncio.to_thread(until, broker.is_ready)
    broker.stop(process)


async def test_kafka_clients_are_refused_until_the_broker_has_metadata(broker):
    """Kafka opens its ports when it is registered (SocketServer.enableRequestProcessing); docs/not-emulated.md.

    A Metadata response without brokers, from a broker that no controller has notified yet, makes librdkafka 2.16 forget
    all brokers for ever. The znodes of the former sessions are the test's own.
    """
    where = broker.settings["zookeeper.connect"]
    earlier = await ZooKeeper.connect(where, session_timeout_ms=30_000, connection_timeout_ms=30_000)
    controller = await ZooKeeper.connect(where, session_timeout_ms=30_000, connection_timeout_ms=30_000)
    await earlier.ensure_path(BROKER_IDS)
    node = BrokerNode(7, "127.0.0.1", broker.other_port, 1_700_000_000_000)
    await earlier.create(broker_path(7), node.encode(), ephemeral=True)
    await controller.create(CONTROLLER, ControllerNode(9, 1_700_000_000_000).encode(), ephemeral=True)
    process = broker.start(listeners=f"PLAINTEXT://127.0.0.1:{broker.other_port},GRPC://127.0.0.1:{broker.port}")

    async def is_logged(words: str) -> bool:
        return await asyncio.to_thread(lambda: any(words in line for line in process.stderr))

    def is_open() -> bool:
        try:
            socket.create_connection(("127.0.0.1", broker.other_port), 30).close()
        except ConnectionRefusedError:
            return False
        return True

    assert await is_logged("still belongs to session"), "it ended"
    assert not is_open()
    await earlier.close()
    assert await is_logged("Kafka clients are refused until"), "it ended"
    assert not await asyncio.to_thread(broker.is_ready)  # it has responded, so it is past the line of its log
    assert not is_open()
    await controller.close()
    await asyncio.to_thread(until, broker.is_ready)
    assert is_open()
    broker.stop(process)
