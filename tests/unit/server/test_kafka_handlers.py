"""Handlers of Kafka's protocol over a service that returns what a test says: versions, order of checks, errors.

tests/integration/test_kafka_wire_responses.py compares a complete broker's responses with Kafka's.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_service import FakeService, ask, versions
from tests.wire_responses.batches import batch
from tests.wire_responses.probe import message
from tests.wire_responses.records import produce

from tidegauge.cluster_metadata import Assignment
from tidegauge.cluster_metadata.client_quotas import ANY_NAME, Quota
from tidegauge.cluster_metadata.credentials import CredentialOutcome
from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import APIS
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.partition import TopicPartition
from tidegauge.principal import Principal
from tidegauge.settings import BrokerSettings, Values, altered
from tidegauge.settings.broker import BROKER_SETTINGS
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_broker.server.service.admin_outcomes import (
    AlteredConfigs,
    DescribedConfigs,
    PartitionOutcomes,
    Reassignments,
)
from tidegauge_broker.server.service.cluster_view import ClusterView, PartitionView, TopicView
from tidegauge_broker.server.service.produce_verification import Verified
from tidegauge_broker.server.wire.kafka.served import HANDLERS
from tidegauge_controller.admin import TopicOutcome
from tidegauge_controller.zookeeper.client import BadPath, SessionExpired

SESSION_TIMEOUT = "consumer.session.timeout.ms"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
ID_BYTES = bytes(15) + b"\x02"


def returning(value: Any) -> Any:
    return lambda *_, **__: value


def coming(value: Any) -> Any:
    async def come(*_: Any, **__: Any) -> Any:
        return value

    return come


# Refusals of a broker without an authorizer


@pytest.mark.parametrize("version", versions("DescribeAcls"))
async def test_acls_need_an_authorizer(version: int) -> None:
    """AclApis: SECURITY_DISABLED, for each creation and filter if there are several."""
    without = FakeService(configs=SimpleNamespace(acls=None))
    described = await ask(without, "DescribeAcls", version, message("DescribeAcls", pattern_type_filter=3))
    assert (described.error_code, described.error_message) == (54, "No Authorizer is configured on the broker")
    acl = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"}
    created = await ask(without, "CreateAcls", version, message("CreateAcls", creations=[acl, acl]))
    assert [one.error_code for one in created.results] == [54, 54]
    deleted = await ask(without, "DeleteAcls", version, message("DeleteAcls", filters=[{}]))
    assert [(one.error_code, one.error_message) for one in deleted.filter_results] == [
        (54, "No Authorizer is configured.")
    ]


@pytest.mark.parametrize(
    "name", ["CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"]
)
async def test_tokens_need_an_authenticated_connection(name: str) -> None:
    """KafkaApis.allowTokenRequests: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, in every version."""
    for version in versions(name):
        assert (await ask(FakeService(), name, version, message(name))).error_code == 64


async def test_a_token_that_is_refused_names_who_asked() -> None:
    owner = {"owner_principal_type": "User", "owner_principal_name": "b"}
    response = await ask(FakeService(), "CreateDelegationToken", 3, message("CreateDelegationToken", **owner))
    assert (response.principal_name, response.token_requester_principal_name) == ("b", "ANONYMOUS")
    assert response.issue_timestamp_ms == -1
    older = await ask(FakeService(), "CreateDelegationToken", 2, message("CreateDelegationToken"))
    assert (older.principal_type, older.principal_name) == ("User", "ANONYMOUS")


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        ("", "b", ("", "b")),
        ("Group", "", ("User", "ANONYMOUS")),
        (None, None, ("User", "ANONYMOUS")),
        ("Group", "b", ("Group", "b")),
    ],
)
async def test_a_token_whose_owner_has_no_name_is_of_who_asked(
    kind: str | None, name: str | None, shown: tuple[str, str]
) -> None:
    """KafkaApis.handleCreateTokenRequest: the name alone decides."""
    owner = {"owner_principal_type": kind, "owner_principal_name": name}
    response = await ask(FakeService(), "CreateDelegationToken", 3, message("CreateDelegationToken", **owner))
    assert (response.principal_type, response.principal_name) == shown


@pytest.mark.parametrize(
    "name", ["CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"]
)
async def test_tokens_are_disabled_for_who_is_authenticated(name: str) -> None:
    """DelegationTokenManager without delegation.token.secret.key: DELEGATION_TOKEN_AUTH_DISABLED."""
    alice = Principal("User", "alice")
    for version in versions(name):
        response = await ask(FakeService(), name, version, message(name), principal=alice)
        assert response.error_code == 61
    if name == "CreateDelegationToken":
        assert (response.principal_name, response.token_requester_principal_name) == ("alice", "alice")


@pytest.mark.parametrize("name", ["SaslHandshake", "SaslAuthenticate"])
async def test_sasl_on_a_listener_without_it_is_an_illegal_state(name: str) -> None:
    for version in versions(name):
        assert (await ask(FakeService(), name, version, message(name))).error_code == 34


# Features, quotas, users


@pytest.mark.parametrize(
    ("version", "update", "sentence"),
    [
        (1, {"feature": ""}, "Feature name can not be empty."),
        (1, {"feature": "f", "upgrade_type": 9, "max_version_level": 1}, "Received unknown upgrade type."),
        (0, {"feature": "f", "max_version_level": 0}, "Can not provide versionLevel: 0 less than 1"),
        (0, {"feature": "f", "max_version_level": 0, "allow_downgrade": True}, "Can not delete non-existing"),
        (1, {"feature": "f", "max_version_level": -1, "upgrade_type": 3}, "Can not delete non-existing"),
        (1, {"feature": "f", "max_version_level": 1}, "the provided feature is not supported."),
    ],
)
async def test_a_feature_is_refused_in_kafkas_order(version: int, update: dict[str, Any], sentence: str) -> None:
    """KafkaController.validateFeatureUpdate of a broker that supports none."""
    request = message("UpdateFeatures", feature_updates=[update])
    [result] = (await ask(FakeService(is_controller=True), "UpdateFeatures", version, request)).results
    assert result.error_code == 42
    assert sentence in result.error_message


async def test_features_are_the_controllers() -> None:
    request = message("UpdateFeatures", feature_updates=[{"feature": "f"}])
    response = await ask(FakeService(is_controller=False), "UpdateFeatures", 1, request)
    assert (response.error_code, list(response.results)) == (41, [])


@pytest.mark.parametrize(
    ("components", "error", "sentence"),
    [
        ([{"entity_type": "", "match_type": 2}], 42, "Unexpected empty filter component entity type"),
        ([{"entity_type": "group", "match_type": 2}], 35, "Custom entity type 'group' not supported"),
        ([{"entity_type": "user", "match_type": 2}] * 2, 42, "Duplicate user filter component entity type"),
        ([{"entity_type": "user", "match_type": 9}], -1, None),
        ([{"entity_type": "user", "match_type": 0, "match": None}], -1, None),
    ],
)
async def test_a_filter_of_quotas_is_refused_as_a_whole(
    components: list[dict[str, Any]], error: int, sentence: str | None
) -> None:
    for component in components:
        component.setdefault("match", None)
    request = message("DescribeClientQuotas", components=components)
    response = await ask(FakeService(), "DescribeClientQuotas", 1, request)
    assert (response.error_code, response.error_message, response.entries) == (error, sentence, None)


async def test_a_filter_of_quotas_reaches_the_service() -> None:
    quotas = FakeService(describe=coming([Quota({"user": None, "client-id": "c"}, {"producer_byte_rate": 1.0})]))
    components = [
        {"entity_type": "user", "match_type": 1, "match": None},
        {"entity_type": "client-id", "match_type": 2, "match": None},
    ]
    request = message("DescribeClientQuotas", components=components, strict=True)
    for version in versions("DescribeClientQuotas"):
        service = FakeService(configs=SimpleNamespace(quotas=quotas))
        response = await ask(service, "DescribeClientQuotas", version, request)
        [entry] = response.entries
        assert [(one.entity_type, one.entity_name) for one in entry.entity] == [("client-id", "c"), ("user", None)]
        assert [(one.key, one.value) for one in entry.values] == [("producer_byte_rate", 1.0)]
    assert quotas.calls[0][1:] == (({"user": None, "client-id": ANY_NAME},), {"strict": True})


async def test_quotas_are_altered_one_by_one() -> None:
    async def alter(entity: dict[str, str | None], changes: dict[str, float | None], *, validate_only: bool) -> None:
        if "bad" in changes:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Invalid configuration key bad")

    quotas = FakeService(alter=alter)
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": [{"key": "k", "value": 1.0, "remove": False}]},
        {
            "entity": [{"entity_type": "user", "entity_name": None}],
            "ops": [{"key": "bad", "value": 0.0, "remove": True}],
        },
    ]
    request = message("AlterClientQuotas", entries=entries, validate_only=True)
    service = FakeService(configs=SimpleNamespace(quotas=quotas))
    response = await ask(service, "AlterClientQuotas", 1, request)
    assert [(one.error_code, one.error_message) for one in response.entries] == [
        (0, None),
        (42, "Invalid configuration key bad"),
    ]
    assert [call[1] for call in quotas.calls] == [({"user": "a"}, {"k": 1.0}), ({"user": None}, {"bad": None})]
    assert all(call[2] == {"validate_only": True} for call in quotas.calls)


async def test_quotas_that_zookeeper_does_not_take_leave_the_other_entries_of_the_request() -> None:
    """Their error is UNKNOWN_SERVER_ERROR, as in Kafka; a connection that closes would not say which were altered."""

    async def alter(entity: dict[str, str | None], _changes: object, **_: object) -> None:
        if entity == {"user": ".."}:
            raise BadPath("/config/users/..")

    entries = [
        {"entity": [{"entity_type": "user", "entity_name": name}], "ops": [{"key": "k", "value": 1.0}]}
        for name in ("a", "..", "b")
    ]
    service = FakeService(configs=SimpleNamespace(quotas=FakeService(alter=alter)))
    response = await ask(service, "AlterClientQuotas", 1, message("AlterClientQuotas", entries=entries))
    assert [one.error_code for one in response.entries] == [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0]


@pytest.mark.parametrize("name", ["DescribeClientQuotas", "DescribeUserScramCredentials"])
async def test_what_zookeeper_does_not_say_is_an_error_of_the_response(name: str) -> None:
    """The connection stays; Kafka's error is UNKNOWN_SERVER_ERROR."""

    async def describe(*_: object, **__: object) -> None:
        raise SessionExpired("the session ended")

    described = FakeService(describe=describe)
    service = FakeService(configs=SimpleNamespace(quotas=described, users=described))
    response = await ask(service, name, 0, message(name))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_credentials_are_altered_by_the_controller_alone() -> None:
    users = FakeService(alter=coming({"a": CredentialOutcome()}))
    puts = [{"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}]
    request = message("AlterUserScramCredentials", upsertions=puts, deletions=[{"name": "a", "mechanism": 2}])
    elsewhere = FakeService(is_controller=False, configs=SimpleNamespace(users=users))
    response = await ask(elsewhere, "AlterUserScramCredentials", 0, request)
    assert [(one.user, one.error_code, one.error_message) for one in response.results] == [("a", 41, None)]
    assert users.calls == []
    here = FakeService(is_controller=True, configs=SimpleNamespace(users=users))
    response = await ask(here, "AlterUserScramCredentials", 0, request)
    assert [(one.user, one.error_code, one.error_message) for one in response.results] == [("a", 0, "")]
    assert users.calls[0][1] == ([("a", 2)], [("a", 1, 4096, b"s", b"p")])


async def test_no_users_named_are_all() -> None:
    users = FakeService(describe=coming({"a": CredentialOutcome(iterations={1: 4096})}))
    service = FakeService(configs=SimpleNamespace(users=users))
    for named in (None, []):
        request = message("DescribeUserScramCredentials", users=named)
        [result] = (await ask(service, "DescribeUserScramCredentials", 0, request)).results
        assert [(one.mechanism, one.iterations) for one in result.credential_infos] == [(1, 4096)]
    assert [call[1] for call in users.calls] == [([],), ([],)]


# Topics


def new_topic(**more: Any) -> dict[str, Any]:
    return {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} | more


@pytest.mark.parametrize(
    ("topics", "error", "sentence"),
    [
        ([new_topic(), new_topic()], 42, "Found multiple entries for this topic."),
        ([new_topic(assignments=[{"partition_index": 0, "broker_ids": [0]}])], 42, "Both numPartitions or"),
        (
            [
                new_topic(
                    num_partitions=-1, replication_factor=-1, assignments=[{"partition_index": 1, "broker_ids": [0]}]
                )
            ],
            39,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        ([new_topic(configs=[{"name": "c", "value": None}])], 40, "Null value not supported for topic configs: c"),
    ],
)
async def test_a_topic_that_contradicts_itself_is_not_asked_for(
    topics: list[dict[str, Any]], error: int, sentence: str
) -> None:
    service = FakeService(create_topics=coming([]), is_controller=True, topic_id=returning(None))
    for version in versions("CreateTopics"):
        response = await ask(service, "CreateTopics", version, message("CreateTopics", topics=topics))
        assert [one.error_code for one in response.topics] == [error] * len(topics)
        if version >= 1:
            assert all(sentence in one.error_message for one in response.topics)
    assert all(call[1][0] == [] for call in service.calls if call[0] == "create_topics")


async def test_a_topic_that_exists_says_so_before_what_else_is_wrong() -> None:
    """ZkAdminManager.createTopics looks for the name first, then at settings, then at counts and assignment."""
    both = {"num_partitions": 1, "assignments": [{"partition_index": 0, "broker_ids": [0]}]}
    null = {"configs": [{"name": "b", "value": None}, {"name": "c", "value": None}]}
    for topic_id, fields, error, sentence in (
        (TOPIC_ID, both, 36, "Topic 't' already exists."),
        (None, both | null, 40, "Null value not supported for topic configs: b,c"),
        (None, both, 42, "Both numPartitions or replicationFactor"),
    ):
        service = FakeService(create_topics=coming([]), is_controller=True, topic_id=returning(topic_id))
        response = await ask(service, "CreateTopics", 7, message("CreateTopics", topics=[new_topic(**fields)]))
        assert response.topics[0].error_code == error
        assert response.topics[0].error_message.startswith(sentence)
    elsewhere = FakeService(create_topics=coming([]), is_controller=False, topic_id=returning(TOPIC_ID))
    response = await ask(elsewhere, "CreateTopics", 7, message("CreateTopics", topics=[new_topic(**both)]))
    assert response.topics[0].error_code == 41


async def test_every_topic_has_the_error_of_a_broker_that_is_not_the_controller() -> None:
    refused = [TopicOutcome("t", ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")]
    service = FakeService(create_topics=coming(refused), create_partitions=coming(refused), is_controller=False)
    response = await ask(service, "CreateTopics", 7, message("CreateTopics", topics=[new_topic()]))
    assert [(one.error_code, one.error_message) for one in response.topics] == [(41, "")]
    request = message("CreatePartitions", topics=[{"name": "t", "count": 2, "assignments": None}])
    response = await ask(service, "CreatePartitions", 3, request)
    assert [(one.error_code, one.error_message) for one in response.results] == [(41, None)]
    response = await ask(service, "DeleteTopics", 6, message("DeleteTopics", topics=[{"name": "t"}]))
    assert [one.error_code for one in response.responses] == [41]


async def test_a_topic_that_is_only_checked_is_described_from_version_5_on() -> None:
    """ZkAdminManager.createTopics: counts and settings of a topic that is not made, and no id."""
    layers = BrokerSettings(Values(BROKER_SETTINGS, {"default.replication.factor": 3}))
    service = FakeService(
        create_topics=coming([TopicOutcome("t")]),
        settings=layers.live,
        configs=SimpleNamespace(new_topic=layers.topic_views),
    )
    wanted = new_topic(num_partitions=4, replication_factor=-1, configs=[{"name": "retention.ms", "value": "77"}])
    request = message("CreateTopics", topics=[wanted], validate_only=True)
    [topic] = (await ask(service, "CreateTopics", 7, request)).topics
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 4, 3)
    assert topic.topic_id == bytes(16)
    assert [(one.value, one.config_source) for one in topic.configs if one.name == "retention.ms"] == [("77", 1)]
    [older] = (await ask(service, "CreateTopics", 4, request)).topics
    assert (older.error_code, older.num_partitions) == (0, -1)


async def test_a_topic_is_deleted_by_name_or_by_id() -> None:
    service = FakeService(
        is_controller=True,
        settings=Values(BROKER_SETTINGS, {}),
        topic_name=lambda found: "t" if found == TOPIC_ID else None,
        topic_id=lambda name: TOPIC_ID if name == "t" else None,
        delete_topics=coming([TopicOutcome("t")]),
    )
    for state in ({"name": "t"}, {"name": None, "topic_id": ID_BYTES}):
        [found] = (await ask(service, "DeleteTopics", 6, message("DeleteTopics", topics=[state]))).responses
        assert (found.name, found.topic_id, found.error_code) == ("t", ID_BYTES, 0)
    unknown = message("DeleteTopics", topics=[{"name": None, "topic_id": uuid.uuid4().bytes}])
    assert [one.error_code for one in (await ask(service, "DeleteTopics", 6, unknown)).responses] == [100]
    both = message("DeleteTopics", topics=[{"name": "t", "topic_id": ID_BYTES}])
    assert [one.error_code for one in (await ask(service, "DeleteTopics", 6, both)).responses] == [42]
    for version in range(6):
        older = message("DeleteTopics", topic_names=["t"])
        assert [one.error_code for one in (await ask(service, "DeleteTopics", version, older)).responses] == [0]


async def test_deletion_that_is_disabled_has_an_error_from_version_3_on() -> None:
    service = FakeService(is_controller=True, settings=Values(BROKER_SETTINGS, {"delete.topic.enable": False}))
    for version in versions("DeleteTopics"):
        named = {"topics": [{"name": "t"}]} if version >= 6 else {"topic_names": ["t"]}
        [found] = (await ask(service, "DeleteTopics", version, message("DeleteTopics", **named))).responses
        assert found.error_code == (73 if version >= 3 else 42)


def cluster_view(*topics: TopicView) -> ClusterView:
    return ClusterView("cluster", 1, 3, [Endpoint(1, "h", 9)], list(topics))


async def test_metadata_shows_what_its_version_has() -> None:
    partition = PartitionView(0, ErrorCode.NONE, 1, 5, [1, 2], [1], [2], 0)
    service = FakeService(
        metadata=returning(cluster_view(TopicView("t", topic_id=TOPIC_ID, partitions=[partition]))),
        topic_name=returning("t"),
        endpoint=returning(Endpoint(1, "h", 9)),
    )
    for version in versions("Metadata"):
        response = await ask(service, "Metadata", version, message("Metadata", topics=[{"name": "t"}]))
        [topic] = response.topics
        [found] = topic.partitions
        assert found.leader_id == 1
        assert response.controller_id == (1 if version >= 1 else -1)
        assert response.cluster_id == ("cluster" if version >= 2 else None)
        assert list(found.offline_replicas) == ([2] if version >= 5 else [])
        assert found.leader_epoch == (5 if version >= 7 else -1)
        assert topic.topic_id == (ID_BYTES if version >= 10 else bytes(16))
        assert found.error_code == (9 if version == 0 else 0), "version 0 knows of live replicas only"


async def test_metadata_of_ids_is_for_version_12() -> None:
    service = FakeService(metadata=returning(cluster_view()), topic_name=returning(None), topic_id=returning(None))
    named = message("Metadata", topics=[{"name": None, "topic_id": ID_BYTES}])
    assert [one.error_code for one in (await ask(service, "Metadata", 12, named)).topics] == [100]
    older = message("Metadata", topics=[{"name": "t", "topic_id": ID_BYTES}])
    assert [one.error_code for one in (await ask(service, "Metadata", 11, older)).topics] == [42]
    for name in (None, "t"):  # version 10 and 11 have no null in their responses
        nameless = message("Metadata", topics=[{"name": None}, {"name": name}])
        refused = await ask(service, "Metadata", 10, nameless)
        assert [(one.name, one.error_code) for one in refused.topics] == [("", 42), (name or "", 42)]
    assert await _brokers_of(service, older) == [], "nothing is named but the error (MetadataRequest.getErrorResponse)"
    mixed = message("Metadata", topics=[{"name": "t"}, {"name": None, "topic_id": ID_BYTES}])
    assert [one.error_code for one in (await ask(service, "Metadata", 12, mixed)).topics] == [100]
    assert service.calls[-1][1][1] == [], "names beside an id are not looked at (handleTopicMetadataRequest)"


async def test_a_topic_without_name_and_id_fails_the_request_for_metadata() -> None:
    """Kafka's broker fails over it, whatever else is requested by name; version 13 has an error of its own for that."""
    service = FakeService(metadata=returning(cluster_view()), topic_name=returning(None), topic_id=returning(None))
    neither = message("Metadata", topics=[{"name": None}, {"name": "t"}])
    for version, error in ((12, 0), (13, -1)):
        response = await ask(service, "Metadata", version, neither, protocol=KRAFT_BROKER_PROTOCOL)
        assert [(one.name, one.error_code) for one in response.topics] == [("", -1), ("t", -1)]
        assert (list(response.brokers), response.error_code) == ([], error)


async def _brokers_of(service: FakeService, request: Any) -> list[Any]:
    return list((await ask(service, "Metadata", 11, request)).brokers)


# Log directories


async def test_only_the_replicas_that_are_asked_for_are_described() -> None:
    """Null asks for all of them, an empty list for none (ReplicaManager.describeLogDirs)."""
    replica = SimpleNamespace(size_bytes=9, offset_lag=0, is_future=False)
    replicas = {TopicPartition("t", 0): replica, TopicPartition("t", 1): replica}
    directory = SimpleNamespace(error=ErrorCode.NONE, path="/d", replicas=replicas, total_bytes=2, usable_bytes=1)
    service = FakeService(describe_log_directories=returning([directory]))
    for topics, described in ((None, [0, 1]), ([{"topic": "t", "partitions": [1]}], [1]), ([], [])):
        response = await ask(service, "DescribeLogDirs", 4, message("DescribeLogDirs", topics=topics))
        [result] = response.results
        assert [one.partition_index for topic in result.topics for one in topic.partitions] == described


# Elections and reassignments


async def test_an_election_has_an_error_for_each_partition() -> None:
    outcomes = PartitionOutcomes(partitions={TopicPartition("t", 0): (ErrorCode.ELECTION_NOT_NEEDED, "not needed")})
    service = FakeService(elect_leaders=coming(outcomes))
    for version in versions("ElectLeaders"):
        request = message(
            "ElectLeaders", topic_partitions=[{"topic": "t", "partitions": [0]}], election_type=version > 0
        )
        response = await ask(service, "ElectLeaders", version, request)
        [found] = response.replica_election_results[0].partition_result
        assert (found.partition_id, found.error_code) == (0, 84)
        assert service.calls[-1][1][1] == (version > 0), "version 0 has preferred elections only"


async def test_reassignments_are_the_controllers() -> None:
    refused = PartitionOutcomes(ErrorCode.NOT_CONTROLLER)
    service = FakeService(
        alter_reassignments=coming(refused), list_reassignments=coming(Reassignments(ErrorCode.NOT_CONTROLLER))
    )
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    sentence = "This is not the correct controller for this cluster."
    for name, fields in (
        ("AlterPartitionReassignments", {"topics": topics}),
        ("ListPartitionReassignments", {"topics": None}),
    ):
        response = await ask(service, name, 0, message(name, **fields))
        assert (response.error_code, response.error_message) == (41, sentence)


async def test_reassignments_show_what_comes_and_goes() -> None:
    found = Reassignments(partitions={TopicPartition("t", 0): Assignment((1, 2, 3), (3,), (1,))})
    service = FakeService(list_reassignments=coming(found))
    request = message("ListPartitionReassignments", topics=[{"name": "t", "partition_indexes": [0]}])
    response = await ask(service, "ListPartitionReassignments", 0, request)
    [one] = response.topics[0].partitions
    assert (list(one.replicas), list(one.adding_replicas), list(one.removing_replicas)) == ([1, 2, 3], [3], [1])
    assert response.error_message == ""


# Settings


@pytest.mark.parametrize(
    ("kind", "name", "configs", "error", "sentence"),
    [
        (2, "t", [("a", 0, "1"), ("a", 0, "2")], 42, "Error due to duplicate config keys"),
        (2, "t", [("a", 9, "1")], 42, "Unknown config operation 9"),
        (2, "t", [("a", 0, None), ("b", 0, None)], 42, "Null value not supported for : a, b"),
        (2, "", [("a", 0, "1")], 42, "Default topic resources are not allowed."),
        (9, "t", [("a", 0, "1")], 42, "Unknown resource type 9"),
        (2, "t", [("retention.ms", 2, "1")], 40, "Config value append is not allowed for config key: retention.ms"),
        (
            32,
            "g",
            [(SESSION_TIMEOUT, 2, "1")],
            40,
            f"Config value append is not allowed for config key: {SESSION_TIMEOUT}",
        ),
        (2, "t", [("retention.ms", 3, "1")], 40, "Config value subtract is not allowed for config key: retention.ms"),
    ],
)
async def test_an_alteration_is_refused_in_kafkas_order(
    kind: int, name: str, configs: list[tuple[str, int, str | None]], error: int, sentence: str
) -> None:
    service = FakeService(
        groups=SimpleNamespace(has_group_settings=True),
        describe_configs=coming(DescribedConfigs()),
        alter_configs=coming(AlteredConfigs()),
    )
    changes = [{"name": key, "config_operation": how, "value": value} for key, how, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    for version in versions("IncrementalAlterConfigs"):
        request = message("IncrementalAlterConfigs", resources=[resource])
        response = await ask(service, "IncrementalAlterConfigs", version, request)
        assert [(one.error_code, one.error_message) for one in response.responses] == [(error, sentence)]
    assert all(call[0] != "alter_configs" for call in service.calls)


@pytest.mark.parametrize("name", ["IncrementalAlterConfigs", "AlterConfigs"])
async def test_groups_have_settings_where_a_new_protocol_is_served(name: str) -> None:
    """ConfigResource.Type.GROUP (32); a broker without the extension does not know the resource, as Kafka 3.9's."""
    resource = {"resource_type": 32, "resource_name": "g", "configs": [{"name": SESSION_TIMEOUT, "value": "50000"}]}
    for serves, error in ((True, 0), (False, 42)):
        service = FakeService(
            groups=SimpleNamespace(has_group_settings=serves),
            describe_configs=coming(DescribedConfigs()),
            alter_configs=coming(AlteredConfigs()),
        )
        [found] = (await ask(service, name, 1, message(name, resources=[resource]))).responses
        assert (found.error_code, found.resource_type, found.resource_name) == (error, 32, "g")
        assert [call[1][:3] for call in service.calls if call[0] == "alter_configs"] == (
            [(32, "g", {SESSION_TIMEOUT: "50000"})] if serves else []
        )


async def test_a_groups_settings_are_described_with_their_own_source() -> None:
    """DescribeConfigsResponse.ConfigSource.GROUP_CONFIG is 8; their times are of type INT (3)."""
    views = BrokerSettings(Values(BROKER_SETTINGS, {})).group_views({SESSION_TIMEOUT: "50000"})
    service = FakeService(describe_configs=coming(DescribedConfigs(entries=views)))
    resource = {"resource_type": 32, "resource_name": "g", "configuration_keys": []}
    request = message("DescribeConfigs", resources=[resource], include_synonyms=True)
    [result] = (await ask(service, "DescribeConfigs", 4, request)).results
    of_consumers = [one for one in result.configs if one.name.startswith("consumer.")]
    assert [(one.name, one.value, one.config_source, one.config_type) for one in of_consumers] == [
        ("consumer.assignment.interval.ms", "1000", 5, 3),
        ("consumer.heartbeat.interval.ms", "5000", 5, 3),
        (SESSION_TIMEOUT, "50000", 8, 3),
    ]
    assert [(one.name, one.source) for one in of_consumers[2].synonyms] == [
        (SESSION_TIMEOUT, 8),
        (f"group.{SESSION_TIMEOUT}", 5),
    ]


async def test_no_topic_has_the_empty_name() -> None:
    """ZkAdminManager.alterTopicConfigs refuses it before it looks whether there is such a topic."""
    service = FakeService(describe_configs=coming(DescribedConfigs(ErrorCode.INVALID_TOPIC_EXCEPTION, "empty")))
    resource = {"resource_type": 2, "resource_name": "", "configs": [{"name": "a", "value": "1"}]}
    for version in versions("AlterConfigs"):
        [found] = (await ask(service, "AlterConfigs", version, message("AlterConfigs", resources=[resource]))).responses
        assert (found.error_code, found.error_message) == (42, "Default topic resources are not allowed.")


async def cancelled_once_begun(request: Coroutine[Any, Any, Any], begun: asyncio.Event, goes_on: asyncio.Event) -> None:
    """Cancel a request that has begun, as the end of its connection does; let what it began go on until it rests."""
    task = asyncio.get_running_loop().create_task(request)
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    goes_on.set()
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["IncrementalAlterConfigs", "AlterConfigs", "AlterClientQuotas", "DeleteGroups"])
async def test_an_alteration_that_has_begun_ends_also_where_its_connection_closes(name: str) -> None:
    """Kafka's handler thread knows nothing of the connection; the rest of the request would be left undone."""
    begun, goes_on, altered_ones = asyncio.Event(), asyncio.Event(), list[Any]()

    async def alter(*arguments: Any, **_: Any) -> AlteredConfigs:
        begun.set()
        await goes_on.wait()
        altered_ones.append(arguments)
        return AlteredConfigs()

    configs = SimpleNamespace(quotas=SimpleNamespace(alter=alter))
    service = FakeService(
        describe_configs=coming(DescribedConfigs()),
        alter_configs=alter,
        configs=configs,
        groups=SimpleNamespace(ask=alter),
    )
    resources = [{"resource_type": 2, "resource_name": topic, "configs": []} for topic in "tu"]
    entries = [{"entity": [{"entity_type": "user", "entity_name": user}], "ops": []} for user in "tu"]
    fields = {"AlterClientQuotas": {"entries": entries}, "DeleteGroups": {"groups_names": ["t", "u"]}}.get(
        name, {"resources": resources}
    )
    await cancelled_once_begun(ask(service, name, 1, message(name, **fields)), begun, goes_on)
    assert len(altered_ones) == 2


@pytest.mark.parametrize("name", ["CreateAcls", "DeleteAcls", "AlterUserScramCredentials"])
async def test_what_principals_may_do_is_altered_to_the_end_also_where_the_connection_closes(name: str) -> None:
    """As above; here the rest of the request is with the store of the lists, or of the credentials."""
    begun, goes_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def alter(*_: Any) -> Any:
        begun.set()
        await goes_on.wait()
        ended.set()

    store = SimpleNamespace(create=alter, delete=alter, alter=alter)
    service = FakeService(configs=SimpleNamespace(acls=store, users=store), is_controller=True)
    await cancelled_once_begun(ask(service, name, 0, message(name)), begun, goes_on)
    assert ended.is_set()


async def test_a_list_is_appended_to_and_subtracted_from() -> None:
    views = BrokerSettings(Values(BROKER_SETTINGS, {})).topic_views({"cleanup.policy": "delete"})
    service = FakeService(
        describe_configs=coming(DescribedConfigs(entries=views)), alter_configs=coming(AlteredConfigs())
    )
    for own, how, value, expected in (
        ({"cleanup.policy": "compact"}, 2, "delete", "compact,delete"),
        ({"cleanup.policy": "delete"}, 2, "delete", "delete"),
        ({}, 2, "compact", "delete,compact"),  # Kafka's default is what it adds to
        ({"cleanup.policy": "compact,delete"}, 3, "delete", "compact"),
        ({}, 3, "delete", ""),
    ):
        change = {"name": "cleanup.policy", "config_operation": how, "value": value}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
        await ask(service, "IncrementalAlterConfigs", 1, message("IncrementalAlterConfigs", resources=[resource]))
        assert altered(own, service.calls[-1][1][2], []) == {"cleanup.policy": expected}


@pytest.mark.parametrize("name", ["IncrementalAlterConfigs", "AlterConfigs"])
async def test_a_topic_that_does_not_exist_is_named(name: str) -> None:
    for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        service = FakeService(describe_configs=coming(DescribedConfigs(code, "a sentence of describe")))
        resource = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "a", "value": "1"}]}
        response = await ask(service, name, 1, message(name, resources=[resource]))
        [found] = response.responses
        assert (found.error_code, found.error_message) == (3, "The topic 't' does not exist.")


async def test_replacing_settings_deletes_what_is_not_named() -> None:
    views = BrokerSettings(Values(BROKER_SETTINGS, {})).topic_views({"retention.ms": "1", "segment.ms": "2"})
    service = FakeService(
        describe_configs=coming(DescribedConfigs(entries=views)), alter_configs=coming(AlteredConfigs())
    )
    resource = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "segment.ms", "value": "3"}]}
    for version in versions("AlterConfigs"):
        await ask(service, "AlterConfigs", version, message("AlterConfigs", resources=[resource]))
        assert service.calls[-1][1][2:] == ({"segment.ms": "3"}, None), "all that the write finds beside it"


async def test_settings_are_described_with_what_the_version_has() -> None:
    views = BrokerSettings(Values(BROKER_SETTINGS, {})).topic_views({"retention.ms": "1"})
    service = FakeService(describe_configs=coming(DescribedConfigs(entries=views)))
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms", "nope"]}
    request = message("DescribeConfigs", resources=[resource], include_synonyms=True, include_documentation=True)
    for version in versions("DescribeConfigs"):
        [result] = (await ask(service, "DescribeConfigs", version, request)).results
        [found] = result.configs
        assert (found.name, found.value) == ("retention.ms", "1")
        assert found.config_source == (1 if version >= 1 else -1)
        assert [one.source for one in found.synonyms] == ([1] if version >= 1 else [])
        assert found.config_type == (5 if version >= 3 else 0)
        assert bool(found.documentation) == (version >= 3)
    everything = message("DescribeConfigs", resources=[resource | {"configuration_keys": []}])
    [result] = (await ask(service, "DescribeConfigs", 4, everything)).results
    assert len(result.configs) == len(views), "no keys are all"


# The cluster


async def test_only_brokers_are_described() -> None:
    service = FakeService(metadata=returning(cluster_view()), is_controller=True)
    for kind, error in ((1, 0), (2, 114), (3, 115)):
        response = await ask(service, "DescribeCluster", 1, message("DescribeCluster", endpoint_type=kind))
        assert response.error_code == error


async def test_producers_are_described_by_replicas() -> None:
    service = FakeService(
        describe_producers=returning(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        topic_id=lambda name: TOPIC_ID if name == "t" else None,
    )
    for topic, error, sentence in (
        ("nope", 3, "This server does not host this topic-partition."),
        ("t", 3, None),
        ("a b", 17, "Topic name is invalid: 'a b' contains"),
    ):
        request = message("DescribeProducers", topics=[{"name": topic, "partition_indexes": [0]}])
        [found] = (await ask(service, "DescribeProducers", 0, request)).topics[0].partitions
        assert found.error_code == error
        assert (found.error_message or "").startswith(sentence or "")


async def test_an_idempotent_producer_gets_an_id_of_the_brokers_block() -> None:
    service = FakeService(init_producer_id=returning((ErrorCode.NONE, "", 77)))
    for version in versions("InitProducerId"):
        response = await ask(service, "InitProducerId", version, message("InitProducerId", transactional_id=None))
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 77, 0)
    without = FakeService(init_producer_id=returning((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "", -1)))
    response = await ask(without, "InitProducerId", 4, message("InitProducerId", transactional_id=None))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (14, -1, -1)
    incomplete = message("InitProducerId", transactional_id=None, producer_id=5)
    response = await ask(service, "InitProducerId", 4, incomplete)
    assert (response.error_code, response.producer_id) == (42, -1)


@pytest.mark.parametrize(("client_id", "may_be_internal"), [("__admin_client", True), ("admin", False), (None, False)])
async def test_a_client_with_the_name_of_admin_clients_may_write_internal_topics(
    client_id: Any, may_be_internal: bool
) -> None:
    """KafkaApis.handleProduceRequest: the name is all that is looked at."""
    asked: list[Any] = []

    def append(request: Any) -> Any:
        asked.append(request)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result([ProduceResult(request.partitions[0].topic_partition)])
        return future

    verification = FakeService(of=lambda request, *_, **__: Verified(request, []))
    service = FakeService(produce=append, knows=lambda _: True, verification=verification)
    await ask(service, "Produce", 9, produce(batch()), client_id)
    assert [request.may_be_internal for request in asked] == [may_be_internal]


async def test_what_is_served_is_advertised() -> None:
    names = {"client_software_name": "a", "client_software_version": "1"}
    for version in versions("ApiVersions"):
        response = await ask(FakeService(), "ApiVersions", version, message("ApiVersions", **names))
        found = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
        assert found == {key: (APIS[key].first, APIS[key].last) for key in HANDLERS}
