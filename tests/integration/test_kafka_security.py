"""Kafka clients at brokers with SASL and an authorizer: right and wrong credentials, allowed and denied requests."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.certificates import Authority
from tests.clients.programs import KAFKA, Unavailable, tool
from tests.integration.conftest import metadata_at
from tests.modes import AUTHORIZER, super_users
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]
LIMIT_SECONDS = 30.0
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module", params=["PLAINTEXT", "SSL"])
def cluster(
    request: pytest.FixtureRequest,
    authority: Authority,
    zookeeper: str,
    tmp_path_factory: pytest.TempPathFactory,
    next_base_port: Callable[[], int],
) -> Iterator[LocalCluster]:
    """Two brokers, without TLS and with it."""
    protocol = request.param
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"listener.name.sasl_{protocol.lower()}.plain.sasl.jaas.config": f"{MODULE} required {users};",
        "authorizer.class.name": AUTHORIZER,
        **super_users("User:admin"),
    }
    if protocol == "SSL":
        broker = authority.issue("broker")
        settings |= {
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": str(broker.both),
            "ssl.truststore.location": str(authority.certificate),
        }
    made = LocalCluster.create(
        tmp_path_factory.mktemp("secured"),
        2,
        **metadata_at(zookeeper, f"sasl-{protocol}"),
        base_port=next_base_port(),
        settings=settings,
    )
    made.up(60.0)
    yield made
    made.down(grace_seconds=0)


@pytest.fixture
def client(cluster: LocalCluster, authority: Authority) -> Callable[..., dict[str, Any]]:
    """Settings of librdkafka for a user."""
    protocol = (
        "SASL_SSL" if "SSL" in str(cluster.file.settings.get("security.inter.broker.protocol")) else "SASL_PLAINTEXT"
    )

    def made(user: str, password: str | None = None, mechanism: str = "PLAIN", **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
            "security.protocol": protocol,
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": USERS[user] if password is None else password,
            **more,
        }

    return made


def topics_of(settings: dict[str, Any]) -> set[str] | None:
    """Return the topics that a client sees; None if rejected."""
    try:
        return set(AdminClient(settings).list_topics(timeout=5).topics)
    except KafkaException:
        return None


def error_of(future: Any) -> str | None:
    try:
        future.result(LIMIT_SECONDS)
    except KafkaException as problem:
        return str(problem.args[0].name())
    return None


def test_credentials_are_taken_or_refused(client: Callable[..., dict[str, Any]]) -> None:
    assert topics_of(client("admin")) is not None
    for user, password in (("admin", "wrong"), ("stranger", "admin-secret")):
        assert topics_of(client(user, password)) is None
    admin = AdminClient(client("admin"))
    for mechanism, name in ((ScramMechanism.SCRAM_SHA_256, "256"), (ScramMechanism.SCRAM_SHA_512, "512")):
        wanted = UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, 4096), b"carol-secret")
        [future] = admin.alter_user_scram_credentials([wanted]).values()
        assert error_of(future) is None
        of_scram = client("carol", "carol-secret", f"SCRAM-SHA-{name}")
        until(lambda settings=of_scram: topics_of(settings) is not None, timeout=LIMIT_SECONDS)
        assert topics_of(client("carol", "wrong", f"SCRAM-SHA-{name}")) is None


async def test_aiokafka_is_let_in_and_kept_out(cluster: LocalCluster, client: Callable[..., dict[str, Any]]) -> None:
    if client("admin")["security.protocol"] == "SASL_SSL":
        pytest.skip("the same but for TLS, which its own tests have")

    async def ask(password: str) -> bool:
        made = AIOKafkaAdminClient(
            bootstrap_servers=list(cluster.kafka_bootstrap_servers),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="admin",
            sasl_plain_password=password,
        )
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await made.start()
        except KafkaError:
            return False
        await made.close()
        return True

    assert await ask("admin-secret")
    assert not await ask("wrong")


def test_lists_decide_what_is_written_read_and_seen(client: Callable[..., dict[str, Any]]) -> None:
    """From nothing to a permission, and to its revocation while a consumer reads."""
    admin, alice = AdminClient(client("admin")), AdminClient(client("alice"))
    for future in admin.create_topics([NewTopic("orders", 1, 2), NewTopic("secrets", 1, 2)]).values():
        assert error_of(future) is None
    assert error_of(alice.create_topics([NewTopic("mine", 1, 1)])["mine"]) == "TOPIC_AUTHORIZATION_FAILED"
    assert topics_of(client("alice")) == set()

    allow = AclPermissionType.ALLOW
    prefixed, literal = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    lists = [
        AclBinding(ResourceType.TOPIC, "ord", prefixed, "User:alice", "*", AclOperation.WRITE, allow),
        AclBinding(ResourceType.TOPIC, "orders", literal, "User:bob", "*", AclOperation.READ, allow),
        AclBinding(ResourceType.GROUP, "g", literal, "User:bob", "*", AclOperation.READ, allow),
    ]
    [refused] = alice.create_acls(lists[:1]).values()
    assert error_of(refused) == "CLUSTER_AUTHORIZATION_FAILED"
    assert [error_of(future) for future in admin.create_acls(lists).values()] == [None] * 3
    until(lambda: topics_of(client("alice")) == {"orders"}, timeout=LIMIT_SECONDS)

    acknowledged: dict[str, str | None] = {}
    producer = Producer(client("alice"))
    for topic in ("orders", "secrets"):
        producer.produce(
            topic, b"v", callback=lambda error, one: acknowledged.update({one.topic(): error and error.name()})
        )
    producer.flush(LIMIT_SECONDS)
    assert acknowledged == {"orders": None, "secrets": "TOPIC_AUTHORIZATION_FAILED"}

    consumer = Consumer(client("bob", **{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["orders"])
    assert until(lambda: consumer.poll(1.0), timeout=LIMIT_SECONDS).value() == b"v"
    of_bob = AclBindingFilter(
        ResourceType.TOPIC, "orders", literal, "User:bob", None, AclOperation.ANY, AclPermissionType.ANY
    )
    [deleted] = admin.delete_acls([of_bob]).values()
    assert len(deleted.result(LIMIT_SECONDS)) == 1

    def is_refused() -> bool:
        found = consumer.poll(1.0)
        return found is not None and found.error() is not None and "AUTHORIZATION" in found.error().name()

    until(is_refused, timeout=LIMIT_SECONDS)
    consumer.close()


def test_kafkas_own_tool_works(
    cluster: LocalCluster, client: Callable[..., dict[str, Any]], tmp_path: Path, authority: Authority
) -> None:
    try:
        command = tool(KAFKA, "AclCommand")
    except Unavailable as problem:
        pytest.skip(f"Kafka {KAFKA} can't be had here: {problem}")
    properties = tmp_path / "admin.properties"
    properties.write_text(
        f"security.protocol={client('admin')['security.protocol']}\nsasl.mechanism=PLAIN\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.certificate}\n"
        f'sasl.jaas.config={MODULE} required username="admin" password="admin-secret";\n'
    )

    def run(*words: str) -> str:
        at = ["--bootstrap-server", cluster.kafka_bootstrap_servers[0], "--command-config", str(properties)]
        done = subprocess.run(
            [*command[:-1], "kafka.admin.AclCommand", *at, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("--add", "--allow-principal", "User:alice", "--producer", "--topic", "by-tool")
    listed = run("--list", "--topic", "by-tool")
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)" in listed
    run("--remove", "--force", "--topic", "by-tool")
    assert "by-tool" not in run("--list")


def test_no_secret_is_in_a_log_an_event_or_a_description(
    cluster: LocalCluster, client: Callable[..., dict[str, Any]]
) -> None:
    """Only the files that hold the settings have them, and their owner alone reads those."""
    logs = list((cluster.directory / "logs").iterdir())
    assert logs
    holders = {"server.properties", "cluster.json"}
    for path in cluster.directory.rglob("*"):
        if not path.is_file():
            continue
        if path.name in holders:
            assert path.stat().st_mode & 0o077 == 0, path
        else:
            assert b"-secret" not in path.read_bytes(), path
    admin = AdminClient(client("admin"))
    [described] = admin.describe_configs([ConfigResource("broker", "0")]).values()
    entries = described.result(LIMIT_SECONDS).values()
    assert any(one.is_sensitive for one in entries)
    assert not [one.name for one in entries if "-secret" in str(one.value) or (one.is_sensitive and one.value)]
