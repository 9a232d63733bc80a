"""Each client of docs/clients.md with right and wrong credentials, and with and without permissions.

A client is a process that tries one user after the other: it writes a record to a topic and reads it. One not on
the machine and can't be fetched is skipped, with what it needs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.clients import programs
from tests.clients.programs import KAFKA, KAFKA_4, Attempts, Unavailable
from tests.integration.conftest import metadata_at
from tests.modes import AUTHORIZER, super_users

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
LIMIT_SECONDS = 300.0
MAKERS: dict[str, Callable[[], Attempts]] = {
    "confluent-kafka": lambda: programs.python_attempts("confluent"),
    "aiokafka": lambda: programs.python_attempts("aiokafka"),
    "kafka-python": lambda: programs.python_attempts("kafka-python"),
    "franz-go": lambda: programs.go_attempts("franz"),
    "sarama": lambda: programs.go_attempts("sarama"),
    "kafkajs": programs.kafkajs_attempts,
    "kcat": programs.kcat_attempts,
    "java-3": lambda: programs.java_attempts(KAFKA),
    "java-4": lambda: programs.java_attempts(KAFKA_4),
    "java-0.10": lambda: programs.java_attempts("0.10.2.2"),
}
USERS = {"admin": "admin-secret", "alice": "alice-secret"}
ATTEMPTS = (
    ("alice", "alice-secret", "mine", "done"),
    ("alice", "wrong", "mine", "authentication"),
    ("stranger", "alice-secret", "mine", "authentication"),
    ("alice", "alice-secret", "written", "authorization"),
    ("alice", "alice-secret", "forbidden", "authorization"),
)
"""User, password, topic, and what comes of it; alice may write to ``written``, and not read it."""
WORDS = {
    "done": "done",
    # kafka-python drops a response that arrives together with the end of the connection, and tells of the latter.
    "authentication": r".*authenticat|.*SASL|KafkaTimeoutError.*socket disconnected",
    # A client of Kafka 1.0 or later learns the reason (KIP-152); one before it, that the connection was closed.
    "authentication before KIP-152": r".*TimeoutException: Failed to update metadata",
    "authorization": r".*authoriz(?!ed: SASL)",
}
ALLOWED = (
    (ResourceType.TOPIC, "mine", AclOperation.ALL),
    (ResourceType.TOPIC, "written", AclOperation.WRITE),
    (ResourceType.GROUP, "*", AclOperation.READ),
)


@pytest.fixture(scope="module")
def servers(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[str]:
    """A broker with users in its configuration and in ZooKeeper, and with lists."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    cluster = LocalCluster.create(
        tmp_path_factory.mktemp("credentials"),
        1,
        **metadata_at(zookeeper, "credentials"),
        base_port=next_base_port(),
        settings={
            "sasl.enabled.mechanisms": ",".join(programs.MECHANISMS),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
            "authorizer.class.name": AUTHORIZER,
            **super_users("User:admin"),
        },
    )
    cluster.up(60.0)
    try:
        [address] = cluster.kafka_bootstrap_servers
        prepare(address)
        yield address
    finally:
        cluster.down()


def prepare(address: str) -> None:
    """Make the topics, alice's SCRAM credentials and her permissions."""
    admin = AdminClient(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": USERS["admin"],
        }
    )
    topics = [NewTopic(name, 1, 1) for name in ("mine", "written", "forbidden")]
    credentials = [
        UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), USERS["alice"].encode())
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    lists = [AclBinding(kind, name, literal, "User:alice", "*", operation, allow) for kind, name, operation in ALLOWED]
    made = [admin.create_topics(topics), admin.create_acls(lists)]
    made += [admin.alter_user_scram_credentials([one]) for one in credentials]
    for futures in made:
        for future in futures.values():
            future.result(LIMIT_SECONDS)


OLD = pytest.param("java-0.10", marks=pytest.mark.zookeeper_mode("Kafka 4 has no requests of 0.10 (KIP-896)"))


@pytest.fixture(params=[OLD if name == "java-0.10" else name for name in MAKERS])
def client(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Attempts:
    try:
        made = MAKERS[request.param]()
    except Unavailable as problem:
        pytest.skip(f"{request.param} can't be had here: {problem}")
    record_property("client", made.client)
    record_property("version", made.version)
    tried = "right and wrong passwords, an unknown user, a missing permission"
    record_property("what", f"SASL ({', '.join(made.mechanisms)}): {tried}")
    return made


@pytest.mark.kafka_client("SASL: right and wrong passwords, an unknown user, a missing permission")
def test_a_client_is_let_in_or_learns_why_not(client: Attempts, servers: str) -> None:
    """Each mechanism; the client's own error says whether the credentials or the permission are missing."""
    tried = [(mechanism, *attempt) for mechanism in client.mechanisms for attempt in ATTEMPTS]
    done = subprocess.run(
        programs.filled(client.command, servers=servers),
        input="".join(f"{mechanism} {user} {password} {topic}\n" for mechanism, user, password, topic, _ in tried),
        env=os.environ | dict(client.environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    outcomes = done.stdout.splitlines()
    assert len(outcomes) == len(tried), done.stdout + done.stderr
    for (*attempt, expected), outcome in zip(tried, outcomes, strict=True):
        is_old = expected == "authentication" and "before record batches" in client.client
        words = WORDS[f"{expected} before KIP-152" if is_old else expected]
        assert re.match(words, outcome, re.IGNORECASE), f"{attempt}: {expected} was expected: {outcome}"
