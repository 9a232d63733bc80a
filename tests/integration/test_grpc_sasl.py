"""Users on gRPC listeners: a credential in each call over TLS, for clients, the command line, Spark and brokers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.certificates import Authority
from tests.integration.conftest import metadata_at
from tests.integration.spark_shell import SparkShell
from tests.modes import AUTHORIZER, super_users
from tests.waiting import until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.sasl_client import unsecured_token
from tidegauge_client import Admin, Consumer, GroupConsumer, Producer
from tidegauge_client.sync import SyncProducer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PASSWORDS = {name: f"{name}-pass" for name in ("broker", "alice", "bob", "carol")}
USERS = " ".join(f'user_{name}="{PASSWORDS[name]}"' for name in ("broker", "alice", "bob"))
USERS = f'{PLAIN_MODULE} username="broker" password="broker-pass" {USERS};'
TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
LIMIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


def started(
    directory: Path, brokers: int, metadata: dict[str, Any], base_port: int, authority: Authority
) -> LocalCluster:
    """Start brokers whose listeners ask for credentials, the gRPC listeners of each other too."""
    made = LocalCluster.create(
        directory,
        brokers,
        **metadata,
        base_port=base_port,
        settings={
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.jaas.config": USERS,
            "listener.name.grpc_sasl_ssl.oauthbearer.sasl.jaas.config": TOKENS,
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": TOKENS,
            "ssl.keystore.location": str(authority.issue("broker").both),
            "ssl.truststore.location": str(authority.certificate),
            "authorizer.class.name": AUTHORIZER,
            **super_users("User:broker;User:alice;User:dave"),
        },
    )
    made.up(60.0)
    return made


@pytest.fixture(scope="module")
def one_broker(
    authority: Authority, zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    made = started(tmp_path_factory.mktemp("one"), 1, metadata_at(zookeeper, "grpc-user"), next_base_port(), authority)
    yield made
    made.down(grace_seconds=0)


@pytest.fixture(scope="module")
def cluster(
    authority: Authority, zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    made = started(
        tmp_path_factory.mktemp("three"), 3, metadata_at(zookeeper, "grpc-users"), next_base_port(), authority
    )
    yield made
    made.down(grace_seconds=0)


def as_user(authority: Authority, user: str, password: str, mechanism: str = "PLAIN") -> Any:
    """Return the arguments of a client."""
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": authority.certificate,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def tidegauge(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tidegauge")), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGAUGE_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


async def code_of(address: str, **security: Any) -> ErrorCode:
    """Return what becomes of a client's first request."""
    try:
        async with Admin(address, **security) as admin:
            await admin.metadata([])
    except TidegaugeError as problem:
        return problem.code
    return ErrorCode.NONE


async def test_only_those_with_the_right_password_are_served(
    one_broker: LocalCluster, authority: Authority, tmp_path: Path
) -> None:
    """Through the Python clients, a properties file, and the cluster's directory, which knows the brokers' own user."""
    address = one_broker.bootstrap_servers[0]
    alice = as_user(authority, "alice", "alice-pass")
    async with Admin(address, **alice) as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
    async with Producer(address, **alice) as producer:
        await (await producer.send("t", b"one"))
    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await code_of(address, **as_user(authority, "alice", "wrong")) is refused
    assert await code_of(address, **as_user(authority, "nobody", "alice-pass")) is refused
    assert await code_of(address, security_protocol="SSL", ssl_cafile=authority.certificate) is refused
    bob = as_user(authority, "bob", "bob-pass")
    async with Admin(address, **bob) as admin:
        assert not (await admin.metadata(None)).topics, "what may not be described is not seen"
        with pytest.raises(TidegaugeError) as refusal:
            await admin.create_topic("u", partitions=1, replication_factor=1)
        assert refusal.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with Producer(address, **bob) as producer:
        with pytest.raises(TidegaugeError, match=r"Not authorized to access topics: \[t\]"):
            await (await producer.send("t", b"two"))
    lines = f"security.protocol=SASL_SSL\nssl.truststore.location={authority.certificate}\nsasl.mechanism=PLAIN\n"
    results = []
    for user, password in (("alice", "alice-pass"), ("alice", "wrong"), ("bob", "bob-pass")):
        properties = tmp_path / "client.properties"
        properties.write_text(f'{lines}sasl.jaas.config={PLAIN_MODULE} username="{user}" password="{password}";\n')
        where = ("-b", address, "--command-config", str(properties))
        results.append(await asyncio.to_thread(tidegauge, "describe-topic", "t", *where))
    assert "Topic: t" in results[0].stdout, results[0].stderr
    assert "Authentication failed: Invalid username or password" in results[1].stderr
    assert "Not authorized to access topics: [t]" in results[2].stderr
    audit = "Principal = User:bob is Denied Operation = Create from host = 127.0.0.1 on resource = Topic:LITERAL:u"
    assert audit in (one_broker.directory / "logs" / "broker-0.log").read_text()
    shown = await asyncio.to_thread(
        tidegauge, "describe-config", "--broker", "0", "--all", "--dir", str(one_broker.directory)
    )
    assert "sasl.jaas.config" in shown.stdout, shown.stderr
    kept = {"cluster.json", "server.properties", "controller.properties"}
    texts = [one.read_bytes() for one in one_broker.directory.rglob("*") if one.is_file() and one.name not in kept]
    for password in PASSWORDS.values():
        assert password not in shown.stdout
        assert not any(password.encode() in text for text in texts), "in a log, an event, or another file"


@pytest.mark.long
async def test_the_users_of_scram_are_those_of_kafkas_listeners(cluster: LocalCluster, authority: Authority) -> None:
    """A user that a Kafka client makes may call over gRPC, with the password that is valid now."""
    kafka = AdminClient(
        {
            "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-pass",
        }
    )

    def set_password(password: bytes) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        [future] = kafka.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", info, password)]).values()
        future.result(LIMIT_SECONDS)

    async def has_code(password: str, code: ErrorCode) -> bool:
        carol = as_user(authority, "carol", password, "SCRAM-SHA-512")
        return all([await code_of(address, **carol) is code for address in cluster.bootstrap_servers])

    await asyncio.to_thread(set_password, b"carol-pass")
    await until_async(partial(has_code, "carol-pass", ErrorCode.NONE), LIMIT_SECONDS)
    assert await has_code("wrong", ErrorCode.SASL_AUTHENTICATION_FAILED)
    await asyncio.to_thread(set_password, b"carol-new")
    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    await until_async(partial(has_code, "carol-pass", refused), LIMIT_SECONDS)
    assert await has_code("carol-new", ErrorCode.NONE)


class Tokens:
    """Issues unsecured tokens; counts them."""

    def __init__(self, lifetime_seconds: float) -> None:
        self.issued = 0
        self._options = {
            "unsecuredLoginStringClaim_sub": "dave",
            "unsecuredLoginLifetimeSeconds": str(lifetime_seconds),
        }

    def token(self) -> str:
        self.issued += 1
        return unsecured_token(self._options, time.time_ns() // 1_000_000)


@pytest.mark.long
async def test_a_token_counts_for_each_call_until_it_expires(cluster: LocalCluster, authority: Authority) -> None:
    """OAUTHBEARER: an expired token is refused; a producer's stream ends with its token, and another one goes on."""

    def of(tokens: Tokens) -> Any:
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": authority.certificate,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": tokens,
        }

    servers = list(cluster.bootstrap_servers)
    assert await code_of(servers[0], **of(Tokens(-60))) is ErrorCode.SASL_AUTHENTICATION_FAILED
    tokens = Tokens(2)
    async with Admin(servers, **of(tokens)) as admin:
        await admin.create_topic("tokens", partitions=1, replication_factor=3)
    sent: list[bytes] = []
    async with Producer(servers, **of(tokens)) as producer:
        await (await producer.send("tokens", b"0"))
        first = tokens.issued

        async def has_another() -> bool:
            """Write until a stream has been opened with a later token."""
            sent.append(b"%d" % (len(sent) + 1))
            await (await producer.send("tokens", sent[-1]))
            return tokens.issued > first

        await until_async(has_another, LIMIT_SECONDS)
    async with Consumer(servers, auto_offset_reset="earliest", **of(tokens)) as consumer:
        await consumer.subscribe(["tokens"])
        found: list[bytes] = []
        while len(found) <= len(sent):
            found += [record.value or b"" for record in await consumer.poll(1000)]
    assert found == [b"0", *sent]


@pytest.mark.long
async def test_brokers_are_users_of_each_other_and_fail_over(cluster: LocalCluster) -> None:
    """acks=all needs followers, a killed leader the controller, a group and a transaction their coordinators."""
    servers = cluster.file.bootstrap_servers
    async with Admin(servers) as admin:
        await admin.create_topic("f", partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
    async with Producer(servers, transactional_id="x") as producer:
        await producer.init_transactions()

        async def write(values: range) -> None:
            await producer.begin_transaction()
            for number in values:
                await producer.send("f", b"%d" % number)
            await producer.commit_transaction()

        await write(range(10))
        async with Admin(servers) as admin:
            leader = (await admin.metadata(["f"])).topics["f"].partitions[0].leader_id
        assert leader is not None
        await asyncio.to_thread(cluster.kill, leader)
        await write(range(10, 20))
        await asyncio.to_thread(cluster.start, leader)
    async with GroupConsumer(servers, "g", auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        await consumer.subscribe(["f"])
        found: list[int] = []
        while len(found) < 20:
            found += [int(record.value or b"") for record in await consumer.poll(1000)]
    assert found == list(range(20))
    async with Admin(servers) as admin:

        async def is_in_sync() -> bool:
            return len((await admin.metadata(["f"])).topics["f"].partitions[0].isr) == 3

        await until_async(is_in_sync)
    for broker in range(3):
        log = (cluster.directory / "logs" / f"broker-{broker}.log").read_text()
        assert "Traceback" not in log
        assert not any(password in log for password in PASSWORDS.values())


READ = """
def read(password):
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="%s";' % password
    reader = spark.read.format("tidegauge").option("kafka.bootstrap.servers", servers).option("subscribe", "s")
    reader = reader.option("kafka.security.protocol", "SASL_SSL").option("kafka.ssl.truststore.location", authority)
    reader = reader.option("kafka.sasl.mechanism", "PLAIN").option("kafka.sasl.jaas.config", jaas)
    return sorted(bytes(row.value).decode() for row in reader.load().collect())
try:
    result = read(password)
except Exception as problem:
    result = str(problem)
"""


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_as_a_user(cluster: LocalCluster, authority: Authority, tmp_path: Path) -> None:
    """kafka.sasl.*, on the driver and on the workers."""
    servers = ",".join(cluster.bootstrap_servers)
    made = tidegauge("create-topic", "s", "--partitions", "2", "--dir", str(cluster.directory))
    assert made.returncode == 0, made.stderr
    with SyncProducer(servers, **as_user(authority, "alice", "alice-pass")) as producer:
        for number in range(10):
            producer.send("s", b"%d" % number)
    shell = SparkShell(tmp_path / "spark.log")
    try:
        read = partial(shell.run, READ, servers=servers, authority=str(authority.certificate))
        passwords = ("alice-pass", "wrong")
        found, refused = [read(password=password) for password in passwords]
    finally:
        shell.close()
    assert found == [str(number) for number in range(10)]
    assert "The credentials were not accepted by the broker" in refused
    assert "alice-pass" not in (tmp_path / "spark.log").read_text()
