"""Hostile bytes on a Kafka port, and TLS on it: the broker closes the connection, goes on, and does not grow."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.certificates import Authority
from tests.integration.conftest import kraft_cluster_at
from tests.integration.test_kafka_large_requests import refused
from tests.odd_rounds import OBEYED, OddRounds
from tests.unit.kafka.random_messages import message_versions, random_message
from tests.waiting import until

from tidegauge.kafka.apis import (
    BROKER_PROTOCOL,
    Protocol,
)
from tidegauge.kafka.compiler import MAX_ITEMS
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
LIMIT_SECONDS = 30.0


@contextlib.contextmanager
def connected(cluster: LocalCluster) -> Iterator[socket.socket]:
    host, _, port = cluster.kafka_bootstrap_servers[0].partition(":")
    with socket.create_connection((host, int(port)), LIMIT_SECONDS) as made:
        yield made


def is_closed(connection: socket.socket) -> bool:
    """Read to the end of the connection; False if it stays open."""
    connection.settimeout(LIMIT_SECONDS)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 2),  # two thousand million topics
    ],
    ids=["negative", "zero", "2 GB", "HTTP", "gRPC", "unknown API", "unknown version", "a large array"],
)
def test_what_is_no_request_closes_the_connection_with_one_line_in_the_log(cluster: LocalCluster, sent: bytes) -> None:
    log = cluster.logs / "broker-0.log"
    before = log.read_text().count("Closing the connection of /127.0.0.1")
    with connected(cluster) as connection:
        connection.sendall(sent)
        assert is_closed(connection)
    assert log.read_text().count("Closing the connection of /127.0.0.1") == before + 1


def test_damaged_requests_of_every_api_and_version_leave_the_broker_as_it_was(cluster: LocalCluster) -> None:
    """Fuzzed from the schema: every request of every version, whole and damaged, on connections of their own."""
    pid = cluster.pid_of(0)
    assert pid is not None
    process = psutil.Process(pid)
    before_bytes = process.memory_info().rss
    rng = random.Random(20)
    for key, version, response in message_versions():
        if response or key in OBEYED:
            continue
        whole = joined(request_frame(key, version, 1, "fuzz", random_message(key, version, 1, response=False)))
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(4, len(damaged))] = rng.randrange(256)
        for frame in (whole, bytes(damaged)):
            with connected(cluster) as connection:
                connection.sendall(frame)
                connection.shutdown(socket.SHUT_WR)
                assert is_closed(connection), (key, version)
    assert cluster.pid_of(0) == pid
    log = (cluster.logs / "broker-0.log").read_text()
    assert "Traceback" not in log
    assert process.memory_info().rss < before_bytes + 100_000_000


@pytest.mark.parametrize("name", ["Metadata", "Produce", "Fetch", "ListOffsets", "CreateTopics", "OffsetCommit"])
def test_a_request_above_the_limit_of_items_closes_its_connection(cluster: LocalCluster, name: str) -> None:
    """One line in the log, no memory, and others are served; `test_kafka_large_requests.py` has every API."""
    refused(cluster, name, MAX_ITEMS + 1)


def test_a_thousand_connections_that_send_half_a_frame_cost_little(cluster: LocalCluster) -> None:
    pid = cluster.pid_of(0)
    assert pid is not None
    before_bytes = psutil.Process(pid).memory_info().rss
    with contextlib.ExitStack() as stack:
        for _ in range(1_000):
            connection = stack.enter_context(connected(cluster))
            connection.sendall(struct.pack(">i", 100_000_000) + b"\0\0\0\x09")
        with connected(cluster) as connection:
            connection.sendall(joined(request_frame(18, 0, 7, "still here", random_message(18, 0, 1, response=False))))
            assert struct.unpack(">ii", connection.recv(8, socket.MSG_WAITALL))[1] == 7
        assert psutil.Process(pid).memory_info().rss < before_bytes + 100_000_000
    assert cluster.pid_of(0) == pid


def test_a_kafka_client_produces_and_consumes_in_tls(
    zookeeper: str, tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """An SSL listener of Kafka's protocol beside one of gRPC."""
    authority = Authority(tmp_path, "authority")
    port = next_base_port()
    settings = {
        "broker.id": "3",
        "listeners": f"SSL://localhost:{port},GRPC_SSL://localhost:{port + 1}",
        "zookeeper.connect": f"{zookeeper}/kafka-tls",
        "log.dirs": str(tmp_path / "data"),
        "auto.create.topics.enable": "true",
        "ssl.keystore.location": str(authority.issue("broker").both),
        "ssl.truststore.location": str(authority.certificate),
    }
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "tidegauge_broker.server.verb", "--config", str(config)]
    broker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    trusting = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
    }
    try:
        delivered: list[Any] = []
        producer = confluent_kafka.Producer({**trusting, "allow.auto.create.topics": True})
        producer.produce("secret", b"hello", on_delivery=lambda problem, _: delivered.append(problem))

        def is_delivered() -> bool:
            producer.poll(0.1)
            return bool(delivered)

        until(is_delivered, timeout=LIMIT_SECONDS * 2, what="it is delivered")
        assert delivered == [None]
        consumer = confluent_kafka.Consumer({**trusting, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition("secret", 0, 0)])
        message = until(lambda: consumer.poll(0.5), timeout=LIMIT_SECONDS, what="it is read")
        assert message.value() == b"hello"
        consumer.close()
    finally:
        broker.terminate()
        broker.wait(LIMIT_SECONDS)


ODD_REQUESTS = 500


def ask_odd_requests(cluster: LocalCluster, seed: int, protocol: Protocol = BROKER_PROTOCOL) -> None:
    """Send a cluster of three brokers odd requests of all APIs; see the tests."""
    pids = {broker: cluster.pid_of(broker) for broker in (0, 1, 2)}
    odd = OddRounds.on(cluster.kafka_bootstrap_servers, random.Random(seed), protocol)
    for _ in range(ODD_REQUESTS):
        odd.ask_one()
    odd.close()
    assert {broker: cluster.pid_of(broker) for broker in (0, 1, 2)} == pids
    assert not [log.name for log in cluster.logs.iterdir() if "Traceback" in log.read_text()]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_odd_requests_that_are_well_formed_leave_the_brokers_as_they_were(make_cluster: Any, seed: int) -> None:
    """Things named twice, null, unknown beside known, numbers at the ends: each request has a response or a closed
    connection, but for those that wait for others; no broker ends, and none meets an exception that it did not expect.
    """
    cluster = make_cluster(profile="kafka", settings={"offsets.topic.replication.factor": "1"})
    ask_odd_requests(cluster, seed)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_odd_requests_leave_a_cluster_in_kraft_mode_as_it_was(
    tmp_path: Path, next_base_port: Callable[[], int], seed: int
) -> None:
    """The same for what KRaft mode has besides: share groups, consumer groups, later versions, requests forwarded to
    the controllers, whose logs count as well.
    """
    options = {"profile": "kafka", "settings": {"offsets.topic.replication.factor": "1"}}
    with kraft_cluster_at(tmp_path / "cluster", next_base_port(), **options) as cluster:
        ask_odd_requests(cluster, seed, KRAFT_BROKER_PROTOCOL)
