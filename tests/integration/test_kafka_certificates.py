"""Kafka clients whose certificates say who they are: ``ssl.client.auth`` and ``ssl.principal.mapping.rules``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.certificates import Authority, Identity
from tests.clients.programs import KAFKA, Unavailable, tool
from tests.integration.conftest import metadata_at
from tests.modes import AUTHORIZER, super_users
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]
LIMIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def cluster(
    authority: Authority,
    zookeeper: str,
    tmp_path_factory: pytest.TempPathFactory,
    next_base_port: Callable[[], int],
) -> Iterator[LocalCluster]:
    """Two brokers; Kafka clients may have a certificate of the organisation Tide, brokers are served over gRPC."""
    made = LocalCluster.create(
        tmp_path_factory.mktemp("certified"),
        2,
        **metadata_at(zookeeper, "certified"),
        base_port=next_base_port(),
        settings={
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": str(authority.issue("broker").both),
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.ssl.ssl.client.auth": "requested",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([A-Za-z]+),O=Tide,.*$/$1/L,"
            "RULE:^CN=[^,]+,O=Ebb,.*$/EBB/",
            "authorizer.class.name": AUTHORIZER,
            **super_users("User:admin"),
        },
    )
    made.up(60.0)
    yield made
    made.down(grace_seconds=0)


@pytest.fixture(scope="module")
def client(cluster: LocalCluster, authority: Authority) -> Callable[..., dict[str, Any]]:
    """Settings of librdkafka with a certificate, or without."""

    def made(identity: Identity | None) -> dict[str, Any]:
        own = {} if identity is None else {
            "ssl.certificate.location": str(identity.certificate), "ssl.key.location": str(identity.key)
        }  # fmt: skip
        return {
            "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.certificate),
            **own,
        }

    return made


def of(authority: Authority, name: str, organisation: str = "Tide") -> Identity:
    return authority.issue(f"{name}-{organisation}", subject=f"/C=DE/O={organisation}/CN={name}")


def topics_of(settings: dict[str, Any]) -> set[str] | None:
    """Return the topics that a client sees; None if it is not served."""
    try:
        return set(AdminClient(settings).list_topics(timeout=5).topics)
    except KafkaException:
        return None


def test_a_certificate_gives_the_principal(
    cluster: LocalCluster, authority: Authority, client: Callable[..., dict[str, Any]]
) -> None:
    """CN=Alice,O=Tide,C=DE is User:alice for the lists; without a certificate a client is User:ANONYMOUS."""
    admin = AdminClient(client(of(authority, "Admin")))
    for future in admin.create_topics([NewTopic("orders", 1, 2)]).values():
        future.result(LIMIT_SECONDS)
    of_alice = client(of(authority, "Alice"))
    assert topics_of(of_alice) == set()
    assert topics_of(client(None)) == set(), "a client without a certificate is served, and may see nothing"
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([binding]).values():
        future.result(LIMIT_SECONDS)
    until(lambda: topics_of(of_alice) == {"orders"}, timeout=LIMIT_SECONDS)
    assert topics_of(client(None)) == set()

    assert topics_of(client(of(authority, "Alice", "Ebb"))) == set(), "User:EBB has no permission"
    audit = "Principal = User:EBB is Denied Operation = Describe"
    assert topics_of(client(of(authority, "Alice", "Flood"))) is None, "no rule applies: the connection is closed"
    why = "Failed to map name for 'CN=Alice,O=Flood,C=DE' based on SSL principal mapping rules"
    logs = "".join(path.read_text(errors="replace") for path in (cluster.directory / "logs").glob("*broker*"))
    assert why in logs
    assert audit not in logs, "what a list of topics leaves out is no refusal"


def test_kafkas_java_client_is_known_by_its_certificate(
    cluster: LocalCluster, authority: Authority, tmp_path: Path
) -> None:
    try:
        command = tool(KAFKA, "AclCommand")
    except Unavailable as problem:
        pytest.skip(f"Kafka {KAFKA} can't be had here: {problem}")

    def run(identity: Identity) -> subprocess.CompletedProcess[str]:
        properties = tmp_path / "client.properties"
        properties.write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
            f"ssl.truststore.location={authority.certificate}\nssl.keystore.location={identity.both}\n"
        )
        at = ["--bootstrap-server", cluster.kafka_bootstrap_servers[0], "--command-config", str(properties), "--list"]
        return subprocess.run(
            [*command[:-1], "kafka.admin.AclCommand", *at], capture_output=True, text=True, check=False
        )

    assert run(of(authority, "ADMIN")).returncode == 0
    refused = run(of(authority, "Bob"))
    assert "ClusterAuthorizationException" in refused.stdout + refused.stderr
    stranger = Authority(tmp_path, "stranger").issue("bob", subject="/C=DE/O=Tide/CN=Admin")
    assert run(stranger).returncode != 0, "requested, but a shown certificate must be trusted"


def test_a_client_that_tls_keeps_out_is_in_the_log_with_the_reason(
    cluster: LocalCluster, authority: Authority, tmp_path: Path, client: Callable[..., dict[str, Any]]
) -> None:
    """The log names the reason if a Kafka client sees no more than a closed connection."""
    stranger = Authority(tmp_path, "stranger")
    plain = {"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)}
    ways = {
        "the peer's certificate has expired": client(authority.issue("old", days=-1)),
        "no authority in ssl.truststore.location has issued": client(stranger.issue("foreign")),
        "one side speaks plain text and the other TLS": plain,
        "the client does not trust this broker's certificate": {
            **client(None), "ssl.ca.location": str(stranger.certificate)
        },
    }  # fmt: skip
    for reason, settings in ways.items():
        assert topics_of(settings | {"log_level": 0}) is None, reason
        logs = "".join(path.read_text(errors="replace") for path in (cluster.directory / "logs").glob("*broker*"))
        assert f"(SSL handshake failed): {reason}" in logs
