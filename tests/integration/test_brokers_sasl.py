"""Brokers that authenticate themselves among each other: ``inter.broker.listener.name`` names a listener with SASL.

Controller, followers and coordinators then act for the broker's own user, which an authorizer must know.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from tests.waiting import until

from tidegauge.sasl_client import HASHES
from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]
LIMIT_SECONDS = 60.0
JAAS = {
    "PLAIN": 'x.PlainLoginModule required username="broker" password="broker-secret" user_broker="broker-secret" '
    'user_alice="alice-secret";',
    "SCRAM-SHA-512": 'x.ScramLoginModule required username="broker" password="broker-secret";',
    "OAUTHBEARER": 'x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
}
RECORDS = 200


def credential(mechanism: str, password: str) -> str:
    """Return a password as ``kafka-configs.sh --zookeeper --alter --entity-type users`` writes it."""
    name, salt = HASHES[mechanism], b"0123456789abcdef"
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, 4096)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    server = hmac.digest(salted, b"Server Key", name)
    texts = [base64.b64encode(one).decode() for one in (salt, stored, server)]
    return "salt={},stored_key={},server_key={},iterations=4096".format(*texts)


@pytest.fixture(params=list(JAAS))
def cluster(
    request: pytest.FixtureRequest,
    zookeeper: str,
    tmp_path_factory: pytest.TempPathFactory,
    next_base_port: Callable[[], int],
) -> Iterator[LocalCluster]:
    """Three brokers that are users by a mechanism, and an authorizer for which that user is a super user."""
    mechanism = request.param
    at = f"{zookeeper}/among-{mechanism}"
    if mechanism in HASHES:
        znode = {"version": 1, "config": {mechanism: credential(mechanism, "broker-secret")}}
        client = KazooClient(zookeeper)
        client.start()
        client.create(f"/among-{mechanism}/config/users/broker", json.dumps(znode).encode(), makepath=True)
        client.stop()
        client.close()
    prefix = "listener.name.sasl_plaintext"
    enabled = dict.fromkeys([mechanism, "PLAIN"])
    made = LocalCluster.create(
        tmp_path_factory.mktemp("among"),
        3,
        zookeeper=at,
        base_port=next_base_port(),
        settings={
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(enabled),
            "sasl.mechanism.inter.broker.protocol": mechanism,
            **{f"{prefix}.{one.lower()}.sasl.jaas.config": JAAS[one] for one in enabled},
            f"{prefix}.connections.max.reauth.ms": "3000",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:alice",
        },
    )
    made.up(60.0)
    yield made
    made.down(grace_seconds=0)


def of_alice(cluster: LocalCluster, password: str = "alice-secret") -> dict[str, object]:  # noqa: S107 - the test's own
    return {
        "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }


async def ends_of(cluster: LocalCluster, topic: str) -> list[int]:
    async with Admin(cluster.bootstrap_servers) as admin:
        replicas = await admin.describe_replicas([topic])
    return [one.log_end_offset for of_broker in replicas.values() for one in of_broker or ()]


def test_brokers_replicate_elect_and_coordinate_as_users(cluster: LocalCluster) -> None:
    """acks=all needs followers, a dead leader the controller, a group and a transaction their coordinators."""

    async def created() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
            await admin.wait_for_topic("t")

    asyncio.run(created())
    problems: list[object] = []

    def delivered(error: object, message: object) -> None:
        del message
        problems.extend([error] if error else [])

    settings = of_alice(cluster)
    producer = Producer({**settings, "transactional.id": "x", "acks": "all"})
    producer.init_transactions(LIMIT_SECONDS)

    def write(count: int) -> None:
        producer.begin_transaction()
        for number in range(count):
            producer.produce("t", b"%d" % number, on_delivery=delivered)
        producer.commit_transaction(LIMIT_SECONDS)

    write(RECORDS)
    leader = AdminClient(settings).list_topics("t", LIMIT_SECONDS).topics["t"].partitions[0].leader
    cluster.kill(leader)
    write(RECORDS)
    cluster.start(leader)
    assert not problems

    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []

    def has_read_all() -> bool:
        found.extend(one.value() for one in consumer.consume(100, 1.0) if one.error() is None)
        return len(found) >= 2 * RECORDS

    until(has_read_all, timeout=LIMIT_SECONDS)
    consumer.close()
    assert len(found) == 2 * RECORDS

    def is_everywhere() -> bool:
        ends = asyncio.run(ends_of(cluster, "t"))
        return len(ends) == 3 and len(set(ends)) == 1

    until(is_everywhere, timeout=LIMIT_SECONDS)
    with pytest.raises(KafkaException):
        AdminClient(of_alice(cluster, "wrong")).list_topics(timeout=3)
    for path in (cluster.directory / "logs").iterdir():
        assert "-secret" not in path.read_text(encoding="utf-8", errors="replace"), path
