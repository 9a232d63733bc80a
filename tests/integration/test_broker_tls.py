"""TLS by Kafka's settings: a cluster with TLS only, a single listener with it, and every wrong way to connect."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.certificates import Authority, Identity
from tests.handshakes import refused
from tests.integration.conftest import metadata_at
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.security import Security, security_of_files
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_client.bootstrap import BootstrapServers
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_spark.options import parse_options
from tidegauge_spark.transport import ClusterClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"), "stranger")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


@pytest.fixture(scope="module")
def secured(
    authority: Authority,
    zookeeper: str,
    tmp_path_factory: pytest.TempPathFactory,
    next_base_port: Callable[[], int],
) -> Iterator[LocalCluster]:
    """Two brokers that speak TLS with everybody and want certificates."""
    cluster = LocalCluster.create(
        tmp_path_factory.mktemp("secured"),
        2,
        **metadata_at(zookeeper, "tls"),
        base_port=next_base_port(),
        settings={
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("broker").both),
            "ssl.truststore.location": str(authority.certificate),
            "ssl.client.auth": "required",
        },
    )
    cluster.up()
    yield cluster
    cluster.down(grace_seconds=0)


def tidegauge(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tidegauge")), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGAUGE_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


async def test_brokers_and_clients_talk_in_tls(secured: LocalCluster, authority: Authority, client: Identity) -> None:
    """acks=all needs the follower, and so TLS between the brokers; the controller's requests go the same way."""
    addresses = ",".join(secured.bootstrap_servers)
    async with Admin(
        addresses,
        security_protocol="SSL",
        ssl_cafile=authority.certificate,
        ssl_certfile=client.certificate,
        ssl_keyfile=client.key,
    ) as admin:
        await admin.create_topic("secret", partitions=2, replication_factor=2)
    security = security_of_files("SSL", authority.certificate, client.both)
    servers = BootstrapServers(addresses.split(","), security)
    async with Producer(servers) as producer:
        futures = [await producer.send("secret", b"%d" % number) for number in range(20)]
        await asyncio.gather(*futures)
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(["secret"])
        found: list[bytes] = []
        while len(found) < 20:
            found += [record.value or b"" for record in await consumer.poll(1000)]
    assert sorted(found) == sorted(b"%d" % number for number in range(20))


def test_the_command_line_connects_by_its_directory_or_by_command_config(
    secured: LocalCluster, authority: Authority, client: Identity, tmp_path: Path
) -> None:
    """The directory knows how its brokers speak; elsewhere a client properties file says it, as for Kafka's tools."""
    made = tidegauge("create-topic", "by-folder", "--partitions", "1", "--dir", str(secured.directory))
    assert made.stdout == "Created topic by-folder.\n", made.stderr
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.location={authority.certificate}\nssl.keystore.location={client.both}\n"
    )
    where = ["-b", secured.bootstrap_servers[0], "--command-config", str(properties)]
    assert "by-folder" in tidegauge("list-topics", *where).stdout.split()
    assert json.loads(tidegauge("health", "-o", "json", *where).stdout)["brokers"][0]["ready"]
    shown = tidegauge("describe-config", "--broker", "0", "--all", *where)
    assert "ssl.client.auth=required" in shown.stdout + shown.stderr
    assert tidegauge("faults", "--dir", str(secured.directory)).returncode == 0, "the lab speaks TLS too"


def test_the_spark_source_takes_kafkas_options(secured: LocalCluster, authority: Authority, client: Identity) -> None:
    """kafka.security.protocol and kafka.ssl.*: files by name, as Spark's own source has them."""
    options = parse_options(
        {
            "kafka.bootstrap.servers": ",".join(secured.bootstrap_servers),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(authority.certificate),
            "kafka.ssl.keystore.location": str(client.both),
            "subscribe": "for-spark",
        },
        streaming=False,
    )
    assert "BEGIN" not in repr(options)
    made = tidegauge("create-topic", "for-spark", "--partitions", "3", "--dir", str(secured.directory))
    assert made.returncode == 0, made.stderr
    spark = ClusterClient(options.connection)
    try:
        assert len(spark.partitions(options.subscription)) == 3
    finally:
        spark.close()


def test_every_wrong_way_to_connect_has_a_sentence_on_both_sides_and_harms_no_other(
    secured: LocalCluster, authority: Authority, stranger: Authority, client: Identity
) -> None:
    expired = authority.issue("expired", days=-1)
    foreign = stranger.issue("foreign")
    ways: dict[str, tuple[Security | None, str, str | None]] = {
        "plain text": (None, "the broker speaks TLS on this port", "one side speaks plain text"),
        "no certificate": (
            security_of_files("SSL", authority.certificate),
            "wants a client certificate",
            "the client presented no certificate",
        ),
        "expired": (
            security_of_files("SSL", authority.certificate, expired.both),
            "rejects this client's certificate",
            "the peer's certificate has expired",
        ),
        "of another authority": (
            security_of_files("SSL", authority.certificate, foreign.both),
            "rejects this client's certificate",
            "no authority in ssl.truststore.location has issued the peer's certificate",
        ),
        "believes another authority": (
            security_of_files("SSL", stranger.certificate, client.both),
            "no authority that this client trusts",
            None,  # gRPC hangs up without a word; OpenSSL's clients send an alert (tests/unit/proto/test_security.py)
        ),
    }
    log = secured.directory / "logs" / "broker-0.log"
    for way, (security, reported, logged) in ways.items():
        address = secured.file.broker(0).address
        servers = BootstrapServers([address]) if security is None else BootstrapServers([address], security)
        sentence = asyncio.run(refused(servers))
        assert reported in sentence, way
        if logged is not None:
            until(partial(log_has, log, logged), what=f"{way}: {logged}")
    assert "Traceback" not in log.read_text()
    assert secured.status()["brokers"][0]["state"] == "up"
    assert "by-folder" in tidegauge("list-topics", "--dir", str(secured.directory)).stdout.split()


def log_has(log: Path, words: str) -> bool:
    return words in log.read_text()


async def test_inside_in_plain_text_and_outside_in_tls(
    zookeeper: str, tmp_path: Path, authority: Authority, next_base_port: Callable[[], int]
) -> None:
    """Two listeners by name; each client gets the addresses of the one through which it asks."""
    inside = next_base_port()
    outside = inside + 1
    settings = {
        "broker.id": "3",
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
        "listener.wire.protocol.map": "INSIDE:GRPC,OUTSIDE:GRPC",
        "inter.broker.listener.name": "INSIDE",
        "zookeeper.connect": f"{zookeeper}/two-listeners",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.location": str(authority.issue("outside").both),
    }
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "tidegauge_broker.server.verb", "--config", str(config)]
    broker = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{inside}") as channel:
            until(lambda: is_ready(channel), what="the broker is ready")
        async with Admin(f"127.0.0.1:{inside}") as admin:
            assert (await admin.metadata([])).brokers[3].address == f"127.0.0.1:{inside}"
        through_tls = {"security_protocol": "SSL", "ssl_cafile": authority.certificate}
        async with Admin(f"localhost:{outside}", **through_tls) as admin:  # type: ignore[arg-type]  # names are right
            assert (await admin.metadata([])).brokers[3].address == f"localhost:{outside}"
    finally:
        broker.terminate()
        assert await asyncio.wait_for(broker.wait(), 60) == 0


def is_ready(channel: grpc.Channel) -> bool:
    stub: Any = health_pb2_grpc.HealthStub(channel)  # the package ships no types
    try:
        response = stub.Check(health_pb2.HealthCheckRequest(service="tidegauge.ready"), timeout=2)
    except grpc.RpcError:
        return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


def test_what_a_broker_lacks_for_tls_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(TidegaugeError, match=r"ssl\.truststore\.location"):
        LocalCluster.create(
            tmp_path / "c",
            1,
            settings={"security.inter.broker.protocol": "SSL", "ssl.truststore.location": "/nowhere.pem"},
        )
    assert not (tmp_path / "c").exists()
