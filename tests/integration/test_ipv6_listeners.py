"""Listeners on IPv6 addresses: clients dial what a broker advertises, over both wires."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.conftest import MakeCluster
from tests.integration.test_broker_start import Broker
from tests.waiting import until

from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 60.0


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


@pytest.fixture
def broker(zookeeper: str, tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[Broker]:
    made = Broker(zookeeper, tmp_path, f"ipv6-{os.getpid()}", next_base_port())
    yield made
    made.close()


def produced(servers: str, topic: str) -> None:
    """Produce a record with librdkafka, which dials what the brokers advertise."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(LIMIT_SECONDS) == 0
    assert errors == [None]


@needs_ipv6
@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_brokers_of_up_serve_kafka_clients_on_an_ipv6_address(make_cluster: MakeCluster, host: str) -> None:
    """``up --kafka-host``: the broker reads the listener, and sends clients to its own address."""
    cluster = make_cluster(brokers=1, kafka_host=host)
    [address] = cluster.kafka_bootstrap_servers
    assert address == f"[::1]:{cluster.file.broker(0).kafka_port}"
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=1, replication_factor=1)
    produced(address, "orders")


@needs_ipv6
def test_clients_reach_a_grpc_listener_on_an_ipv6_address(broker: Broker) -> None:
    """The client dials the broker at the address that it makes of Metadata."""
    broker.start(
        listeners=f"PLAINTEXT://[::1]:{broker.other_port},GRPC://[::1]:{broker.port}",
    )

    def serves() -> bool:
        try:
            socket.create_connection(("::1", broker.other_port), 5).close()
        except OSError:
            return False
        return True

    until(serves)
    with SyncAdmin(f"[::1]:{broker.port}") as admin:
        admin.create_topic("t", partitions=1, replication_factor=1)
        [one] = admin.metadata().brokers.values()
        assert one.address == f"[::1]:{broker.port}"
        assert list(admin.describe_replicas()) == [7]
    produced(f"[::1]:{broker.other_port}", "t")


def test_what_zookeeper_stores_is_for_the_owner_alone(tmp_path: Path, next_base_port: Callable[[], int]) -> None:
    """The keys of SCRAM users are in its log, its snapshots, and in the cluster's."""
    cluster = LocalCluster.create(tmp_path / "own", 1, base_port=next_base_port())
    try:
        cluster.up(LIMIT_SECONDS)
        cluster.down()
        cluster.snapshot("one")
        for root in (cluster.directory / "zookeeper", cluster.directory / "snapshots"):
            assert not stat.S_IMODE(root.stat().st_mode) & 0o077
        data = [path for path in (cluster.directory / "zookeeper" / "data").rglob("*") if path.is_file()]
        assert data
        assert [path.name for path in data if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    finally:
        cluster.down()
