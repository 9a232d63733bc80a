"""Brokers that pass for a release of Kafka (``tidegauge.as.kafka``): what its clients see, and no more."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from tests.clients.programs import BENCH, Unavailable
from tests.neighbours import provide
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.produce import ProduceRequest
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_client.cli.main import root
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.wanted import WantedQuorum

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

Versions = dict[int, tuple[int, int]]
_NOT_SERVED = frozenset(
    {
        *range(38, 42),  # delegation tokens
        55,  # DescribeQuorum, in ZooKeeper mode
        *(58, 59, 60, 62, 63, 64),
        *(71, 72),  # telemetry
        75,
        *(80, 81),
        *(88, 89),  # streams groups (KIP-1071)
    }
)
"""APIs that releases serve and Tidegauge's brokers do not, in one mode or both."""
_REFUSED = {"3.9": set(apis.OF_CONSUMER_GROUPS)}
"""APIs that they advertise and refuse in ZooKeeper mode."""


def versions(address: str, client_id: str = "a-client") -> Versions:
    """Return the versions that a broker reports to a client."""

    async def ask() -> Versions:
        channel = KafkaChannel(address, client_id)
        try:
            await channel.connection()
            return dict(channel.versions)
        finally:
            channel.close()

    return asyncio.run(ask())


def verb(cluster: LocalCluster, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(root, [*words, "--dir", str(cluster.directory)])
    assert done.exit_code == code, done.output
    return done.output


@contextmanager
def cluster_as(release: str, at: Path, ports: Callable[[], int], brokers: int = 3) -> Iterator[LocalCluster]:
    """A cluster whose brokers pass for a release."""
    is_kraft = release.startswith("4")
    made = LocalCluster.create(
        at / "cluster",
        brokers=brokers,
        base_port=ports(),
        mode="kraft" if is_kraft else "zookeeper",
        settings={"tidegauge.as.kafka": release},
        quorum=WantedQuorum(port=ports(), controllers=1, release_version=release) if is_kraft else None,
    )
    try:
        made.up()
        yield made
    finally:
        made.down(grace_seconds=0)


def written(servers: str, first: int, count: int) -> None:
    """Write numbers with acks=all and an idempotent producer."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    failed: list[object] = []
    for number in range(first, first + count):
        producer.produce("orders", str(number), on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(120) == 0
    assert not failed


@pytest.mark.parametrize("release", ["2.8", "4.0"])
def test_a_client_writes_and_reads_through_a_killed_leader(
    release: str, tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """Brokers among themselves keep their own versions: replication and transactions' checks need later ones."""
    with cluster_as(release, tmp_path, next_base_port) as cluster:
        servers = ",".join(cluster.kafka_bootstrap_servers)
        address = cluster.kafka_bootstrap_servers[0]
        assert versions(address)[apis.FETCH][1] == {"2.8": 12, "4.0": 17}[release]
        assert versions(address, "broker-9-fetcher-0")[apis.FETCH][1] >= 17
        verb(cluster, "create-topic", "orders", "--partitions", "1", "--replication-factor", "3")
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        found: list[str] = []

        def has_read(count: int) -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
            return len(found) == count

        try:
            written(servers, 0, 100)
            until(lambda: has_read(100), what="the first records are read")
            cluster.kill(cluster.leader_of("orders", 0), expire=True)
            written(servers, 100, 100)
            until(lambda: has_read(200), what="all records are read")
        finally:
            consumer.close()
        assert found == [str(number) for number in range(200)]


def test_a_version_that_the_release_lacks_closes_the_connection(
    tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """As Kafka's SocketServer closes it: InvalidRequestException of an unsupported version."""

    async def produce(address: str) -> None:
        channel = KafkaChannel(address, "a-client")
        connection = await channel.connection()
        limit = asyncio.get_running_loop().time() + 60
        try:
            await connection.send(apis.PRODUCE, 11, ProduceRequest(None, 1, 1_000, []), "", limit)
        finally:
            channel.close()

    with (
        cluster_as("2.8", tmp_path, next_base_port, brokers=1) as cluster,
        pytest.raises(TidegaugeError, match="closed"),
    ):
        asyncio.run(produce(cluster.kafka_bootstrap_servers[0]))


def test_brokers_are_upgraded_one_by_one_and_then_the_features(
    tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """A metadata.version is refused as long as one broker does not support it (FeatureControlManager)."""
    with cluster_as("4.0", tmp_path, next_base_port) as cluster:
        verb(cluster, "create-topic", "orders", "--partitions", "1", "--replication-factor", "3")
        servers = ",".join(cluster.kafka_bootstrap_servers)
        for broker_id in (0, 1, 2):
            refused = CliRunner().invoke(
                root, ["upgrade-features", "--release-version", "4.1", "--dir", str(cluster.directory)]
            )
            assert refused.exit_code != 0
            assert f"Broker {broker_id} only supports versions 25-25" in refused.output
            cluster.stop(broker_id)
            verb(cluster, "up", "-d", "--as-kafka", f"{broker_id}:4.1")
            written(servers, broker_id, 1)
        assert apis.SHARE_GROUP_HEARTBEAT in versions(cluster.kafka_bootstrap_servers[0])
        verb(cluster, "upgrade-features", "--release-version", "4.1")
        assert "4.1-IV1" in verb(cluster, "describe-features")


@pytest.mark.long
@pytest.mark.parametrize(
    ("release", "patch"), [("2.8", "2.8.2"), ("3.4", "3.4.1"), ("3.9", "3.9.1"), ("4.0", "4.0.1"), ("4.1", "4.1.2")]
)
def test_versions_are_those_of_the_releases_own_brokers(
    release: str, patch: str, tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """ApiVersions of Apache Kafka's brokers and of ours that pass for them; needs Maven."""
    for name in ("measure", "perf_tools", "kafka_side", "kafka_4_side"):
        provide(name, BENCH / f"{name}.py")
    name = "kafka_4_side" if patch.startswith("4") else "kafka_side"
    module = importlib.import_module(name)
    try:
        side = (module.Kafka4 if patch.startswith("4") else module.Kafka)(tmp_path, brokers=1, release=patch)
    except Unavailable as problem:
        pytest.skip(f"Apache Kafka {patch} can't be had: {problem}")
    try:
        side.start()
        theirs = versions(side.kafka_bootstrap)
    finally:
        side.stop()
    with cluster_as(release, tmp_path, next_base_port, brokers=1) as cluster:
        ours = versions(cluster.kafka_bootstrap_servers[0])
    differing = {key: (ours.get(key), theirs.get(key)) for key in ours.keys() | theirs.keys()}
    differing = {key: pair for key, pair in differing.items() if pair[0] != pair[1] and key not in _NOT_SERVED}
    refused = _REFUSED.get(release, set())
    assert differing.keys() == refused
    assert not refused & ours.keys()
