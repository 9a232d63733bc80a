"""Security of a cluster in KRaft mode: users, access control lists and quotas are records of the metadata log.

Brokers have a listener with SASL for clients; the controllers' listener has none here, so that whoever connects there
is User:ANONYMOUS, who is a super user of the controllers alone (test_quorum_secured.py has one with SASL).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it names no exports
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.integration.conftest import free_quorum_port
from tests.integration.quorum_nodes import OURS, Quorum, quorum_of
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.frames import codec_of, joined
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import (
    alter_client_quotas,
    begin_quorum_epoch,
    broker_registration,
    create_topics,
    fetch,
    vote,
)
from tidegauge.kafka.kraft.messages.envelope import EnvelopeRequest
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.sasl_client import Login
from tidegauge_broker.log.dump_verb import dump_log
from tidegauge_broker.server.wire.kafka.failed_responses import errors_in
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.wanted import WantedQuorum

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
LIMIT_SECONDS = 60.0
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_admin="admin-secret";',
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
    "3000:super.users": "User:admin;User:ANONYMOUS",
}
WRONG, SECOND = "wrong", "second-secret"
FORGED = b"\0\0\x05User\x06admin\0\0"
"""The principal User:admin as an Envelope has it."""
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
Client = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """One controller and two brokers."""
    made = LocalCluster.create(
        tmp_path_factory.mktemp("secured"),
        2,
        base_port=next_base_port(),
        settings=SETTINGS,
        mode="kraft",
        quorum=WantedQuorum(controllers=1, port=free_quorum_port()),
    )
    made.up(LIMIT_SECONDS)
    yield made
    made.down(grace_seconds=0)


@pytest.fixture
def client(cluster: LocalCluster) -> Client:
    """Settings of librdkafka for a user: PLAIN's, or one whose password is a SCRAM credential."""

    def made(user: str, mechanism: str = "SCRAM-SHA-256", *, password: str = "", **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN" if user == "admin" else mechanism,
            "sasl.username": user,
            "sasl.password": password or f"{user}-secret",
            **more,
        }

    return made


@pytest.fixture
def admin(client: Client) -> AdminClient:
    """A super user."""
    return AdminClient(client("admin"))


def add_user(admin: AdminClient, client: Client, user: str, password: str = "") -> None:
    """Give a user a SCRAM credential, and wait until every broker takes it."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion(user, info, (password or f"{user}-secret").encode())
    [future] = admin.alter_user_scram_credentials([wanted]).values()
    assert error_of(future) is None
    every = client(user, password=password)
    for one in every["bootstrap.servers"].split(","):
        at_one = every | {"bootstrap.servers": one}
        until(lambda at=at_one: is_let_in(at), LIMIT_SECONDS, f"{user} is let in by {one}")


def is_let_in(settings: dict[str, Any]) -> bool:
    """Return whether a client is authenticated."""
    try:
        AdminClient(settings).list_topics(timeout=5)
    except KafkaException:
        return False
    return True


def topics_of(settings: dict[str, Any]) -> set[str]:
    """Return the topics that a client may describe."""
    return set(AdminClient(settings).list_topics(timeout=LIMIT_SECONDS).topics)


def error_of(future: Any) -> str | None:
    """Return the name of a request's error; None: it has none."""
    try:
        future.result(LIMIT_SECONDS)
    except KafkaException as problem:
        return str(problem.args[0].name())
    return None


def create(admin: AdminClient, topic: str, partitions: int = 1) -> str | None:
    """Create a topic with replicas at both brokers; return the name of the error."""
    return error_of(admin.create_topics([NewTopic(topic, partitions, 2)])[topic])


def entry(
    user: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    pattern: ResourcePatternType = LITERAL,
    permission: AclPermissionType = ALLOW,
) -> AclBinding:
    """Return an access control list's entry."""
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def add_entries(admin: AdminClient, *entries: AclBinding) -> None:
    """Add entries of access control lists."""
    assert [error_of(one) for one in admin.create_acls(list(entries)).values()] == [None] * len(entries)


def produced(settings: dict[str, Any], topic: str) -> str | None:
    """Produce a record; return the name of the error, None if it is acknowledged."""
    errors: list[str | None] = []
    producer = Producer(settings)
    producer.produce(topic, b"v", callback=lambda error, _: errors.append(error and error.name()))
    assert producer.flush(LIMIT_SECONDS) == 0
    return errors[0]


def first_read(settings: dict[str, Any], topic: str, group: str) -> tuple[bytes | None, str | None]:
    """Read as a member of a group; return the first record's value, or the name of the error."""
    consumer = Consumer(settings | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found = until(lambda: consumer.poll(1.0), LIMIT_SECONDS, "a record or an error")
        return (found.value(), None) if found.error() is None else (None, found.error().name())
    except KafkaException as problem:
        return None, str(problem.args[0].name())
    finally:
        consumer.close()


def metadata_log(cluster: LocalCluster) -> str:
    """Return the metadata log as text."""
    at = layout.controller_data(cluster.directory, 3000) / "__cluster_metadata-0"
    return CliRunner().invoke(dump_log, ["--cluster-metadata-decoder", *map(str, sorted(at.glob("*.log")))]).output


def test_a_user_is_a_record_that_every_broker_knows(cluster: LocalCluster, client: Client, admin: AdminClient) -> None:
    """KIP-900: created, altered and deleted by the controller; the old password ends with the new one."""
    add_user(admin, client, "dora")
    assert not is_let_in(client("dora", password=WRONG))
    assert not is_let_in(client("dora", "SCRAM-SHA-512")), "each mechanism has a credential of its own"
    assert not is_let_in(client("stranger"))
    assert '"USER_SCRAM_CREDENTIAL_RECORD"' in metadata_log(cluster)
    assert "dora-secret" not in metadata_log(cluster)
    add_user(admin, client, "dora", SECOND)
    until(lambda: not is_let_in(client("dora")), LIMIT_SECONDS, "the first password is refused")
    described = admin.describe_user_scram_credentials(["dora"])["dora"].result(LIMIT_SECONDS)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    gone = UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_256)
    [future] = admin.alter_user_scram_credentials([gone]).values()
    assert error_of(future) is None
    until(lambda: not is_let_in(client("dora", password=SECOND)), LIMIT_SECONDS, "she is not let in any more")


def test_what_is_not_allowed_is_refused_and_what_is_allowed_is_done(client: Client, admin: AdminClient) -> None:
    """StandardAuthorizer at brokers, for data, and at the controller, for requests forwarded to it (KIP-801)."""
    add_user(admin, client, "alice")
    alice = AdminClient(client("alice"))
    assert create(admin, "orders") is None
    assert create(alice, "mine") == "TOPIC_AUTHORIZATION_FAILED"
    assert topics_of(client("alice")) == set()
    assert produced(client("alice"), "orders") == "TOPIC_AUTHORIZATION_FAILED"
    [refused] = alice.create_acls([entry("alice", AclOperation.ALL, ResourceType.TOPIC, "orders")]).values()
    assert error_of(refused) == "CLUSTER_AUTHORIZATION_FAILED"
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    [refused] = alice.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, b"x")]).values()
    assert error_of(refused) == "CLUSTER_AUTHORIZATION_FAILED"

    add_entries(
        admin,
        entry("alice", AclOperation.WRITE, ResourceType.TOPIC, "ord", PREFIXED),
        entry("alice", AclOperation.CREATE, ResourceType.TOPIC, "mine"),
        entry("alice", AclOperation.DELETE, ResourceType.TOPIC, "mine"),
        entry("alice", AclOperation.ALTER, ResourceType.TOPIC, "mine"),
        entry("alice", AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "mine"),
    )
    until(lambda: topics_of(client("alice")) == {"orders"}, LIMIT_SECONDS, "WRITE implies DESCRIBE, at each broker")
    until(lambda: produced(client("alice"), "orders") is None, LIMIT_SECONDS, "she may write")
    until(lambda: create(alice, "mine") is None, LIMIT_SECONDS, "she may create it")
    grown = alice.create_partitions([NewPartitions("mine", 2), NewPartitions("orders", 2)])
    assert error_of(grown["mine"]) is None
    assert error_of(grown["orders"]) == "TOPIC_AUTHORIZATION_FAILED"
    setting = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    altered = {
        name: ConfigResource(ResourceType.TOPIC, name, incremental_configs=[setting]) for name in ("mine", "orders")
    }
    done = alice.incremental_alter_configs(list(altered.values()))
    assert error_of(done[altered["mine"]]) is None
    assert error_of(done[altered["orders"]]) == "TOPIC_AUTHORIZATION_FAILED"
    gone = alice.delete_topics(["mine", "orders"])
    assert error_of(gone["mine"]) is None
    assert error_of(gone["orders"]) == "TOPIC_AUTHORIZATION_FAILED"


def test_a_reader_needs_topic_and_group_and_a_denial_wins(client: Client, admin: AdminClient) -> None:
    """READ of both; a DENY entry takes away what others allow, and its removal gives it back."""
    add_user(admin, client, "bob")
    assert create(admin, "invoices") is None
    assert produced(client("admin"), "invoices") is None
    add_entries(admin, entry("bob", AclOperation.READ, ResourceType.TOPIC, "*"))
    until(lambda: "invoices" in topics_of(client("bob")), LIMIT_SECONDS, "READ implies DESCRIBE")
    assert first_read(client("bob"), "invoices", "readers") == (None, "GROUP_AUTHORIZATION_FAILED")
    add_entries(admin, entry("bob", AclOperation.READ, ResourceType.GROUP, "read", PREFIXED))
    until(lambda: first_read(client("bob"), "invoices", "readers")[0] == b"v", LIMIT_SECONDS, "he reads")
    add_entries(admin, entry("bob", AclOperation.READ, ResourceType.TOPIC, "invoices", permission=DENY))
    until(
        lambda: first_read(client("bob"), "invoices", "readers-2") == (None, "TOPIC_AUTHORIZATION_FAILED"),
        LIMIT_SECONDS,
        "a denial wins",
    )
    denials = AclBindingFilter(ResourceType.TOPIC, "invoices", LITERAL, "User:bob", None, AclOperation.ANY, DENY)
    assert len(admin.describe_acls(denials).result(LIMIT_SECONDS)) == 1
    [deleted] = admin.delete_acls([denials]).values()
    assert len(deleted.result(LIMIT_SECONDS)) == 1
    until(lambda: first_read(client("bob"), "invoices", "readers-3")[0] == b"v", LIMIT_SECONDS, "he reads again")


async def ask_broker(cluster: LocalCluster, key: int, message: Any) -> Any:
    """Send one request as the super user, on a connection of its own; return its response."""
    login = Login.of("PLAIN", f'{MODULE} required username="admin" password="admin-secret";')
    channel = KafkaChannel(cluster.kafka_bootstrap_servers[0], "test", login=login, protocol=KRAFT_PROTOCOL)
    try:
        return await channel.request(key, message, LIMIT_SECONDS)
    finally:
        channel.close()


def test_a_quota_throttles_its_user_alone(cluster: LocalCluster, client: Client, admin: AdminClient) -> None:
    """ClientQuotaRecord: the broker that leads measures the user's requests, and says how long they are throttled."""
    for user in ("slow", "free"):
        add_user(admin, client, user)
    add_entries(admin, *(entry(user, AclOperation.WRITE, ResourceType.TOPIC, "metered") for user in ("slow", "free")))
    assert create(admin, "metered") is None
    entity = [alter_client_quotas.EntityData("user", "slow")]
    quota = alter_client_quotas.EntryData(entity, [alter_client_quotas.OpData("producer_byte_rate", 20_000.0)])
    response = asyncio.run(
        ask_broker(cluster, apis.ALTER_CLIENT_QUOTAS, alter_client_quotas.AlterClientQuotasRequest([quota]))
    )
    assert [one.error_code for one in response.entries] == [0]
    until(lambda: produced(client("slow"), "metered") is None, LIMIT_SECONDS, "lists are in force")
    times: dict[str, list[float]] = {"slow": [], "free": []}
    producers = {
        user: Producer(client(user, throttle_cb=lambda event, user=user: times[user].append(event.throttle_time)))
        for user in times
    }

    def is_throttled() -> bool:
        for producer in producers.values():
            producer.produce("metered", b"x" * 10_000)
            producer.poll(0.01)
        return bool(times["slow"])

    until(is_throttled, LIMIT_SECONDS, "the producer is told to wait")
    assert max(times["slow"]) > 0
    assert times["free"] == []
    for producer in producers.values():
        producer.purge()


def test_security_outlives_a_restart_of_all(cluster: LocalCluster, client: Client, admin: AdminClient) -> None:
    """Users and lists come out of the metadata log, before a broker serves its first client."""
    add_user(admin, client, "erin")
    assert create(admin, "kept") is None
    add_entries(admin, entry("erin", AclOperation.WRITE, ResourceType.TOPIC, "kept"))
    until(lambda: produced(client("erin"), "kept") is None, LIMIT_SECONDS, "she may write")
    cluster.down()
    cluster.up(LIMIT_SECONDS)
    assert produced(client("erin"), "kept") is None
    assert topics_of(client("erin")) == {"kept"}
    assert not is_let_in(client("erin", password=WRONG))


# Attacks


def enveloped(key: int, message: Any, principal: bytes = FORGED) -> EnvelopeRequest:
    """Return a request as if a broker forwarded it for a client."""
    frame = joined(codec_of(key, KRAFT_APIS[key].last, KRAFT_PROTOCOL).request_frame(5, "client", message))[4:]
    return EnvelopeRequest(frame, principal, bytes([127, 0, 0, 1]))


def new_topic(name: str) -> create_topics.CreateTopicsRequest:
    """Return a request for a topic."""
    return create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name, 1, 1)])


def metadata_topic(kind: Any, partition: Any) -> list[Any]:
    """Return the metadata partition as Raft's requests name it."""
    return [kind("__cluster_metadata", [partition])]


ATTACKS: dict[str, tuple[int, Callable[[], Any]]] = {
    "a topic for a forged principal": (
        apis.ENVELOPE,
        lambda: enveloped(apis.CREATE_TOPICS, new_topic("forged")),
    ),
    "a user for a forged principal": (
        apis.ENVELOPE,
        lambda: enveloped(apis.CREATE_ACLS, KRAFT_PROTOCOL.message_class(apis.CREATE_ACLS, response=False)()),
    ),
    "a topic": (apis.CREATE_TOPICS, lambda: new_topic("own")),
    "a broker": (
        apis.BROKER_REGISTRATION,
        lambda: broker_registration.BrokerRegistrationRequest(
            broker_id=0, cluster_id="pQKNjKG6SIW1R46E3fVjJA", incarnation_id=secrets.token_bytes(16)
        ),
    ),
    "a vote in a later epoch": (
        apis.VOTE,
        lambda: vote.VoteRequest(
            None,
            3000,
            metadata_topic(
                vote.TopicData,
                vote.PartitionData(0, 99, 998, bytes(16), bytes(16), 98, 10_000, False),
            ),
        ),
    ),
    "a leader of a later epoch": (
        apis.BEGIN_QUORUM_EPOCH,
        lambda: begin_quorum_epoch.BeginQuorumEpochRequest(
            None,
            3000,
            metadata_topic(begin_quorum_epoch.TopicData, begin_quorum_epoch.PartitionData(0, bytes(16), 998, 99)),
        ),
    ),
    "the log itself": (apis.FETCH, fetch.FetchRequest),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """A controller whose listener's clients, User:ANONYMOUS, are ordinary: User:admin alone is a super user."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    with quorum_of(tmp_path_factory.mktemp("guarded"), [OURS], settings=settings) as quorum:
        written = "END_TRANSACTION_RECORD"  # the last of the records with which a controller begins
        until(lambda: written in quorum.nodes[0].dump(), LIMIT_SECONDS, "the controller is active")
        yield quorum


def errors_of(response: Any) -> set[int]:
    """Return all error codes of a response."""
    return set(map(int, errors_in(response)))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_ordinary_principal_at_the_controllers_listener_changes_nothing(attack: str, guarded: Quorum) -> None:
    """CLUSTER_AUTHORIZATION_FAILED or the topic's; no record is written, and the leader keeps its epoch."""
    [node] = guarded.nodes
    before, log = node.segments(), node.log()
    key, message = ATTACKS[attack]

    async def ask() -> Any:
        channel = KafkaChannel(node.address, "raft-client-998", protocol=KRAFT_PROTOCOL)
        try:
            return await channel.request(key, message(), LIMIT_SECONDS)
        finally:
            channel.close()

    found = errors_of(asyncio.run(ask()))
    assert found in ({ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, {ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert node.segments() == before
    assert node.log() == log, "it leads on, and says nothing"


def test_brokers_take_no_envelope_from_a_client(cluster: LocalCluster, client: Client, admin: AdminClient) -> None:
    """Envelope is for controllers: even a super user's connection to a broker ends (KIP-590)."""
    with pytest.raises(TidegaugeError) as refused:
        asyncio.run(ask_broker(cluster, apis.ENVELOPE, enveloped(apis.CREATE_TOPICS, new_topic("by-envelope"))))
    assert refused.value.code in {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NETWORK_EXCEPTION}
    assert "by-envelope" not in topics_of(client("admin"))
