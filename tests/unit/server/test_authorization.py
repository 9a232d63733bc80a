"""The permissions that each API needs (KafkaApis): a refusal has Kafka's error, and does not reach the handler."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_service import KEYS, ask
from tests.wire_responses.probe import message

from tidegauge.cluster_metadata.access_lists import Entry, Operation, Pattern, PatternType, Permission, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import APIS, EXTENSIONS, message_class
from tidegauge.kafka.fields import NIL_UUID, WIRE
from tidegauge.kafka.frames import RequestHeader, encode
from tidegauge.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from tidegauge.kafka.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from tidegauge.kafka.messages.describe_cluster import DescribeClusterResponse
from tidegauge.kafka.messages.list_groups import ListedGroup, ListGroupsResponse
from tidegauge.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from tidegauge.kafka.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tidegauge.principal import Principal
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules
from tidegauge_broker.server.cluster.zookeeper.acl_store import AclStore
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.kafka.failed_responses import errors_in
from tidegauge_broker.server.wire.kafka.handlers.metadata import refusal
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context
from tidegauge_broker.server.wire.kafka.responses import settled
from tidegauge_broker.server.wire.kafka.served import HANDLERS, SERVED, guarded
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache

sys.path.append(str(Path(__file__).parents[1] / "kafka"))
from random_messages import random_message

ALICE = Principal("User", "alice")
TOPIC_BY_ID = "hidden"
AN_ID = bytes(15) + b"\x07"
TOPIC, GROUP, CLUSTER, TRANSACTION = 29, 30, 31, 53
GUARDED = {key for key, api in SERVED.items() if api.guard is not None}
UNGUARDED = {
    *("ApiVersions", "SaslHandshake", "SaslAuthenticate"),
    *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"),
}
"""APIs that need nothing to be allowed."""
GROUP_G = ((Operation.DESCRIBE, ResourceType.GROUP, "g"),)


class Service(SimpleNamespace):
    """A controller with one topic."""

    is_controller = True
    settings = SimpleNamespace(flag=lambda _: True)
    groups = SimpleNamespace(shares=SimpleNamespace(topic_id=lambda _: NIL_UUID))

    def topic_name(self, topic_id: str) -> str | None:
        return TOPIC_BY_ID

    def metadata(self, caller: Caller, names: list[str], **_: Any) -> Any:
        error = ErrorCode.NONE if names == ["there"] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return SimpleNamespace(topics=[SimpleNamespace(error=error)])


class Api:
    """One API behind its guard; notes what reaches the handler."""

    def __init__(self, name: str, version: int, *allowed: tuple[Operation, ResourceType, str], **rules: Any) -> None:
        self.key = KEYS[name]
        self.version = version
        self.seen: list[Any] = []
        self.is_controller = True
        self.response = message_class(self.key, response=True)()
        authorizer = AclAuthorizer(Rules(**rules))
        for operation, kind, resource in allowed:
            authorizer.put(Pattern(kind, resource), [Entry("User:alice", "*", operation, Permission.ALLOW)])
        self.acls = AclStore(None, authorizer)  # type: ignore[arg-type] # decides alone
        self._guarded = guarded({self.key: self._handle}, self.acls)[self.key]

    def _handle(self, request: Any, context: Context) -> Any:
        self.seen.append(request)
        self.context = context
        return self.response

    async def ask(self, request: Any) -> Any:
        caller = Caller("c", "L", host="10.0.0.1", principal=ALICE)
        header = RequestHeader(self.key, self.version, 1, "test", 0)
        service = Service(is_controller=self.is_controller)
        context = Context(service, caller, FetchSessionCache(10, lambda: 1), lambda: 0, header)  # type: ignore[arg-type]
        found = await settled(self._guarded(request, context))
        encode(self.key, self.version, found)
        return found


def test_every_api_has_a_guard_or_needs_none() -> None:
    assert SERVED.keys() == HANDLERS.keys() | EXTENSIONS
    assert SERVED.keys() - GUARDED == {KEYS[name] for name in UNGUARDED}


def test_without_an_authorizer_handlers_are_called_as_they_are() -> None:
    found = guarded(HANDLERS, None)
    assert all(found[key] is handler for key, handler in HANDLERS.items())


T = {"name": "t", "partitions": [{"partition_index": 0}]}
SHARE_T = {"topic_id": bytes(15) + b"t", "partitions": [{"partition": 0}]}
PLAIN_T = {"name": "t", "partitions": [0]}
BATCH = bytes(16) + b"\x02" + bytes(5) + b"\x10" + bytes(60)
NAMING = ("topics", "topic_data", "groups", "coordinator_keys", "resources", "groups_names", "topic_names", "group_ids")
EMPTY_ASSIGNMENTS = {"assignment": Assignment(), "target_assignment": Assignment()}
DENIED = [
    ("Produce", 9, {"topic_data": [{"name": "t", "partition_data": [{"index": 0}]}], "acks": 1}, {TOPIC}),
    (
        *("Produce", 9),
        {"acks": 1, "transactional_id": "x", "topic_data": [{"name": "t", "partition_data": [{"records": BATCH}]}]},
        {TRANSACTION},
    ),
    ("ListOffsets", 7, {"topics": [T]}, {TOPIC}),
    ("ShareFetch", 2, {"group_id": "g"}, {GROUP}),
    ("ShareAcknowledge", 2, {"group_id": "g"}, {GROUP}),
    ("Metadata", 12, {"topics": [{"name": "t"}]}, {TOPIC}),
    ("Metadata", 12, {"topics": [{"name": None, "topic_id": AN_ID}]}, {TOPIC}),
    ("LeaderAndIsr", 7, {}, {CLUSTER}),
    ("StopReplica", 4, {}, {CLUSTER}),
    ("UpdateMetadata", 8, {}, {CLUSTER}),
    ("ControlledShutdown", 3, {}, {CLUSTER}),
    ("OffsetCommit", 8, {"group_id": "g", "topics": [T]}, {GROUP}),
    ("OffsetFetch", 7, {"group_id": "g"}, {GROUP}),
    ("OffsetFetch", 1, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}, {GROUP}),
    ("OffsetFetch", 9, {"groups": [{"group_id": "g", "topics": None}]}, {GROUP}),
    ("FindCoordinator", 6, {"coordinator_keys": ["g"], "key_type": 0}, {GROUP}),
    ("FindCoordinator", 3, {"key": "g", "key_type": 0}, {GROUP}),
    ("FindCoordinator", 3, {"key": "t", "key_type": 1}, {TRANSACTION}),
    ("JoinGroup", 9, {"group_id": "g"}, {GROUP}),
    ("Heartbeat", 4, {"group_id": "g"}, {GROUP}),
    ("LeaveGroup", 5, {"group_id": "g"}, {GROUP}),
    ("SyncGroup", 5, {"group_id": "g"}, {GROUP}),
    ("DescribeGroups", 5, {"groups": ["g"]}, {GROUP}),
    ("CreateTopics", 7, {"topics": [{"name": "t"}]}, {TOPIC}),
    ("DeleteTopics", 6, {"topics": [{"name": "t"}]}, {TOPIC}),
    ("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": AN_ID}]}, {TOPIC}),
    ("DeleteTopics", 5, {"topic_names": ["t"]}, {TOPIC}),
    ("DeleteRecords", 2, {"topics": [T]}, {TOPIC}),
    ("InitProducerId", 4, {"transactional_id": None}, {CLUSTER}),
    ("InitProducerId", 4, {"transactional_id": "x"}, {TRANSACTION}),
    ("OffsetForLeaderEpoch", 4, {"topics": [{"topic": "t", "partitions": [{"partition": 0}]}]}, {TOPIC}),
    (
        *("AddPartitionsToTxn", 3),
        {"v3_and_below_transactional_id": "x", "v3_and_below_topics": [PLAIN_T]},
        {TRANSACTION},
    ),
    ("AddPartitionsToTxn", 5, {}, {CLUSTER}),
    ("AddOffsetsToTxn", 3, {"transactional_id": "x", "group_id": "g"}, {TRANSACTION}),
    ("EndTxn", 3, {"transactional_id": "x"}, {TRANSACTION}),
    (
        *("WriteTxnMarkers", 1),
        {"markers": [{"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [0]}]}]},
        {CLUSTER},
    ),
    ("TxnOffsetCommit", 3, {"transactional_id": "x", "group_id": "g", "topics": [T]}, {TRANSACTION}),
    ("DescribeAcls", 3, {}, {CLUSTER}),
    ("CreateAcls", 3, {"creations": [{}]}, {CLUSTER}),
    ("DeleteAcls", 3, {"filters": [{}]}, {CLUSTER}),
    ("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": "t"}]}, {TOPIC}),
    ("DescribeConfigs", 4, {"resources": [{"resource_type": 4, "resource_name": "0"}]}, {CLUSTER}),
    ("DescribeConfigs", 4, {"resources": [{"resource_type": 32, "resource_name": "g"}]}, {GROUP}),
    ("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 32, "resource_name": "g"}]}, {GROUP}),
    ("AlterConfigs", 2, {"resources": [{"resource_type": 2, "resource_name": "t"}]}, {TOPIC}),
    ("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 4, "resource_name": "0"}]}, {CLUSTER}),
    ("AlterReplicaLogDirs", 2, {"dirs": [{"path": "p", "topics": [PLAIN_T]}]}, {CLUSTER}),
    ("DescribeLogDirs", 4, {}, {CLUSTER}),
    ("CreatePartitions", 3, {"topics": [{"name": "t"}]}, {TOPIC}),
    ("DeleteGroups", 2, {"groups_names": ["g"]}, {GROUP}),
    ("ElectLeaders", 2, {}, {CLUSTER}),
    ("AlterPartitionReassignments", 0, {}, {CLUSTER}),
    ("ListPartitionReassignments", 0, {}, {CLUSTER}),
    ("OffsetDelete", 0, {"group_id": "g"}, {GROUP}),
    ("DescribeClientQuotas", 1, {}, {CLUSTER}),
    ("AlterClientQuotas", 1, {"entries": [{"entity": [{"entity_type": "user"}]}]}, {CLUSTER}),
    ("DescribeUserScramCredentials", 0, {}, {CLUSTER}),
    ("AlterUserScramCredentials", 0, {"deletions": [{"name": "a", "mechanism": 1}]}, {CLUSTER}),
    ("AlterPartition", 3, {}, {CLUSTER}),
    ("UpdateFeatures", 1, {}, {CLUSTER}),
    ("DescribeProducers", 0, {"topics": [{"name": "t", "partition_indexes": [0]}]}, {TOPIC}),
    ("DescribeTransactions", 0, {"transactional_ids": ["x"]}, {TRANSACTION}),
    ("AllocateProducerIds", 0, {}, {CLUSTER}),
    ("ConsumerGroupHeartbeat", 1, {"group_id": "g"}, {GROUP}),
    ("ConsumerGroupDescribe", 1, {"group_ids": ["g"]}, {GROUP}),
    ("ShareGroupHeartbeat", 1, {"group_id": "g", "member_id": "m"}, {GROUP}),
    ("ShareGroupDescribe", 1, {"group_ids": ["g"]}, {GROUP}),
    ("InitializeShareGroupState", 0, {"group_id": "g", "topics": [SHARE_T]}, {CLUSTER}),
    ("ReadShareGroupState", 0, {"group_id": "g", "topics": [SHARE_T]}, {CLUSTER}),
    ("WriteShareGroupState", 1, {"group_id": "g", "topics": [SHARE_T]}, {CLUSTER}),
    ("DeleteShareGroupState", 0, {"group_id": "g", "topics": [SHARE_T]}, {CLUSTER}),
    ("ReadShareGroupStateSummary", 1, {"group_id": "g", "topics": [SHARE_T]}, {CLUSTER}),
    ("DescribeShareGroupOffsets", 1, {"groups": [{"group_id": "g", "topics": None}]}, {GROUP}),
    ("AlterShareGroupOffsets", 0, {"group_id": "g", "topics": []}, {GROUP}),
    ("DeleteShareGroupOffsets", 0, {"group_id": "g", "topics": []}, {GROUP}),
    ("FindCoordinator", 6, {"coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0"], "key_type": 2}, {CLUSTER}),
]


@pytest.mark.parametrize(("name", "version", "fields", "errors"), DENIED)
async def test_who_may_nothing_gets_the_error_and_nothing_is_done(
    name: str, version: int, fields: dict[str, Any], errors: set[int]
) -> None:
    api = Api(name, version)
    response = await api.ask(message(name, **fields))
    assert errors_in(response) == errors
    for request in api.seen:  # the rest of it names nothing
        assert not any(getattr(request, field, None) for field in NAMING)


def test_every_guard_is_in_the_table_but_those_that_only_filter() -> None:
    named = {KEYS[name] for name, *_ in DENIED}
    filtering = {KEYS[name] for name in ("Fetch", "ListGroups", "DescribeCluster", "ListTransactions")}
    assert named | filtering == GUARDED


@pytest.mark.parametrize("key", sorted(GUARDED))
async def test_a_super_users_requests_reach_the_handler_as_they_are(key: int) -> None:
    """In every version, for any request; a refusal can be encoded in every version too."""
    api = APIS[key]
    for version in range(api.first, api.last + 1):
        for seed in range(3):
            request = random_message(key, version, seed, response=False)
            everything = Api(api.name, version, super_users=frozenset({ALICE}))
            await everything.ask(request)
            if key == KEYS["Metadata"] and refusal(request, version) is not None:
                assert not everything.seen, "the guard itself refuses what no handler serves"
                continue
            [seen] = everything.seen
            assert seen == request
            try:
                await Api(api.name, version).ask(request)
            except CloseConnection:
                assert request.acks == 0


async def test_a_part_that_is_allowed_is_handled_and_the_rest_refused() -> None:
    api = Api("Produce", 9, (Operation.WRITE, ResourceType.TOPIC, "a"))
    topics = [{"name": name, "partition_data": [{"index": 1}]} for name in "ab"]
    response = await api.ask(message("Produce", acks=1, topic_data=topics))
    assert [topic.name for topic in api.seen[0].topic_data] == ["a"]
    [refused] = response.responses
    assert (refused.name, refused.partition_responses[0].error_code) == ("b", TOPIC)
    assert refused.partition_responses[0].base_offset == -1


async def test_without_acks_a_refusal_closes_the_connection() -> None:
    api = Api("Produce", 9)
    with pytest.raises(CloseConnection):
        await api.ask(message("Produce", acks=0, topic_data=[{"name": "t", "partition_data": [{"index": 1}]}]))
    assert not api.seen


async def test_of_all_topics_only_those_that_may_be_described_are_named() -> None:
    """Whether a topic exists is not said: one that is named has the same error whether it exists or not."""
    api = Api("Metadata", 12, (Operation.READ, ResourceType.TOPIC, "a"))
    api.response = MetadataResponse(topics=[MetadataResponseTopic(0, name) for name in ("a", "b")])
    response = await api.ask(message("Metadata", topics=None))
    assert [one.name for one in response.topics] == ["a"]
    for name in ("there", "nowhere"):
        denied = Api("Metadata", 12)
        [topic] = (await denied.ask(message("Metadata", topics=[{"name": name}]))).topics
        assert (topic.error_code, topic.name, topic.topic_id, list(topic.partitions)) == (TOPIC, name, NIL_UUID, [])
    by_id = await Api("Metadata", 12).ask(message("Metadata", topics=[{"name": None, "topic_id": AN_ID}]))
    assert (by_id.topics[0].name, by_id.topics[0].topic_id) == (None, AN_ID)


async def test_a_topic_is_created_on_demand_for_those_alone_who_may_create_it() -> None:
    describe = (Operation.DESCRIBE, ResourceType.TOPIC, "new")
    request = message("Metadata", topics=[{"name": "new"}], allow_auto_topic_creation=True)
    refused = Api("Metadata", 12, describe)
    assert errors_in(await refused.ask(request)) == {TOPIC}
    allowed = Api("Metadata", 12, describe, (Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster"))
    await allowed.ask(request)
    assert [one.name for one in allowed.seen[0].topics] == ["new"]
    there = Api("Metadata", 12, (Operation.DESCRIBE, ResourceType.TOPIC, "there"))
    await there.ask(message("Metadata", topics=[{"name": "there"}], allow_auto_topic_creation=True))
    assert [one.name for one in there.seen[0].topics] == ["there"]


async def test_operations_are_those_of_the_caller() -> None:
    """AuthHelper.authorizedOperations, bits of AclOperation."""
    api = Api("Metadata", 10, (Operation.READ, ResourceType.TOPIC, "a"))
    api.response = MetadataResponse(topics=[MetadataResponseTopic(0, "a")])
    request = message(
        *("Metadata",),
        topics=[{"name": "a"}],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
        allow_auto_topic_creation=False,
    )
    response = await api.ask(request)
    assert response.topics[0].topic_authorized_operations == (1 << Operation.READ) | (1 << Operation.DESCRIBE)
    assert response.cluster_authorized_operations == 0


@pytest.mark.parametrize("allowed", [Operation.DESCRIBE, Operation.ALTER, Operation.CREATE, None])
async def test_operations_on_the_cluster_are_shown_to_those_who_may_describe_it(allowed: Operation | None) -> None:
    """KafkaApis.handleDescribeCluster; ALTER implies DESCRIBE. A response with an error stays as it is."""
    rights = [] if allowed is None else [(allowed, ResourceType.CLUSTER, "kafka-cluster")]
    api = Api("DescribeCluster", 1, *rights)
    request = message("DescribeCluster", include_cluster_authorized_operations=True)
    shown = {
        Operation.DESCRIBE: 1 << Operation.DESCRIBE,
        Operation.ALTER: (1 << Operation.ALTER) | (1 << Operation.DESCRIBE),
    }
    assert (await api.ask(request)).cluster_authorized_operations == shown.get(allowed, 0)
    api.response = DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    assert (await api.ask(request)).cluster_authorized_operations == -(2**31)


async def test_groups_are_listed_if_they_or_the_cluster_may_be_described() -> None:
    for allowed, found in (
        ((Operation.READ, ResourceType.GROUP, "a"), ["a"]),
        ((Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"), ["a", "b"]),
    ):
        api = Api("ListGroups", 5, allowed)
        api.response = ListGroupsResponse(groups=[ListedGroup("a"), ListedGroup("b")])
        assert [one.group_id for one in (await api.ask(message("ListGroups"))).groups] == found


async def test_a_fetch_reads_topics_that_may_be_read_and_a_followers_needs_the_cluster() -> None:
    consumer = Api("Fetch", 11, (Operation.READ, ResourceType.TOPIC, "a"))
    await consumer.ask(message("Fetch", replica_id=-1))
    assert consumer.context.may_read is not None
    assert [consumer.context.may_read(name) for name in "ab"] == [True, False]
    follower = Api("Fetch", 11, (Operation.READ, ResourceType.TOPIC, "a"))
    await follower.ask(message("Fetch", replica_id=1))
    assert follower.context.may_read is not None
    assert not follower.context.may_read("a")
    broker = Api("Fetch", 11, (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"))
    await broker.ask(message("Fetch", replica_id=1))
    assert broker.context.may_read is None


async def test_a_producer_needs_one_topic_to_write_to_or_the_cluster() -> None:
    """KIP-679: IDEMPOTENT_WRITE, or WRITE of any topic."""
    for allowed in (
        (Operation.WRITE, ResourceType.TOPIC, "a"),
        (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster"),
    ):
        api = Api("InitProducerId", 4, allowed)
        await api.ask(message("InitProducerId", transactional_id=None))
        assert api.seen


async def test_a_transaction_takes_all_its_partitions_or_none() -> None:
    api = Api(
        *("AddPartitionsToTxn", 3),
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"),
        (Operation.WRITE, ResourceType.TOPIC, "a"),
    )
    topics = [{"name": name, "partitions": [0]} for name in "ab"]
    request = message("AddPartitionsToTxn", v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    response = await api.ask(request)
    assert not api.seen
    errors = {
        one.name: one.results_by_partition[0].partition_error_code for one in response.results_by_topic_v3_and_below
    }
    assert errors == {"a": ErrorCode.OPERATION_NOT_ATTEMPTED, "b": TOPIC}


# CreateTopics shows a topic's settings to those who may describe them


def a_created(name: str, error: ErrorCode = ErrorCode.NONE) -> CreatableTopicResult:
    return CreatableTopicResult(name, AN_ID, error, None, 0, 3, 2, [CreatableTopicConfigs("retention.ms", "1")])


async def test_settings_counts_and_id_of_a_created_topic_are_for_those_who_may_describe_its_settings() -> None:
    """KafkaApis.handleCreateTopicsRequest; ZkAdminManager fills in only the results that it is given for this."""
    may_create = (Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    api = Api("CreateTopics", 7, may_create, (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "shown"))
    api.response = CreateTopicsResponse(topics=[a_created("shown"), a_created("hidden")])
    found = await api.ask(message("CreateTopics", topics=[{"name": "shown"}, {"name": "hidden"}]))
    assert found.topics == [
        a_created("shown"),
        CreatableTopicResult("hidden", NIL_UUID, ErrorCode.NONE, None, TOPIC, -1, -1, ()),
    ]


async def test_a_creation_that_failed_has_no_error_of_the_settings() -> None:
    """The creation's failure clears it (handleCreateTopicsResults); a refusal and a repeated name keep it."""
    api = Api("CreateTopics", 7, (Operation.CREATE, ResourceType.TOPIC, "there"))
    twice = a_created("twice", ErrorCode.INVALID_REQUEST)
    api.response = CreateTopicsResponse(topics=[a_created("there", ErrorCode.TOPIC_ALREADY_EXISTS), twice])
    names = ("there", "twice", "twice", "denied")
    found = await api.ask(message("CreateTopics", topics=[{"name": name} for name in names]))
    errors = {one.name: (one.error_code, one.topic_config_error_code) for one in found.topics}
    assert errors == {
        "there": (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE),
        "twice": (ErrorCode.INVALID_REQUEST, TOPIC),
        "denied": (TOPIC, TOPIC),
    }


# OffsetFetch


@pytest.mark.parametrize(("version", "error"), [(1, GROUP), (5, TOPIC), (7, TOPIC), (9, TOPIC)])
async def test_a_refused_partition_has_neither_offset_nor_epoch(version: int, error: int) -> None:
    api = Api("OffsetFetch", version, *(GROUP_G if error == TOPIC else ()))
    topics = [{"name": "t", "partition_indexes": [4]}]
    if version >= 8:
        api.response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g")])
        found = await api.ask(message("OffsetFetch", groups=[{"group_id": "g", "topics": topics}]))
        found = found.groups[0]
    else:
        found = await api.ask(message("OffsetFetch", group_id="g", topics=topics))
    assert found.error_code == ErrorCode.NONE
    [partition] = found.topics[0].partitions
    assert dataclasses.astuple(partition) == (4, -1, -1, "", error)


@pytest.mark.parametrize("version", [7, 9])
async def test_an_error_of_the_group_names_no_topics(version: int) -> None:
    """KafkaApis.fetchOffsetsForGroup adds the refused topics only to a group that has no error."""
    api = Api("OffsetFetch", version, *GROUP_G)
    topics = [{"name": "t", "partition_indexes": [4]}]
    api.response = OffsetFetchResponse(
        error_code=ErrorCode.NOT_COORDINATOR,
        groups=[OffsetFetchResponseGroup("g", error_code=ErrorCode.NOT_COORDINATOR)],
    )
    request = {"groups": [{"group_id": "g", "topics": topics}]} if version >= 8 else {"group_id": "g", "topics": topics}
    found = await api.ask(message("OffsetFetch", **request))
    assert not (found.groups[0] if version >= 8 else found).topics


# CreateAcls, DescribeAcls and DeleteAcls


class Lists:
    """The lists, as handlers need them."""

    def __init__(self) -> None:
        self.authorizer = AclAuthorizer(Rules())
        self.authorizer.put(Pattern(ResourceType.TOPIC, "t"), [Entry("User:a", "*", Operation.READ, Permission.DENY)])
        prefix = Pattern(ResourceType.TOPIC, "p", PatternType.PREFIXED)
        self.authorizer.put(prefix, [Entry("User:b", "*", Operation.ALL, Permission.ALLOW)])


@pytest.mark.parametrize(("version", "names"), [(0, ["t"]), (1, ["t", "p"]), (3, ["t", "p"])])
async def test_lists_are_described_by_pattern(version: int, names: list[str]) -> None:
    """DescribeAclsResponse; version 0 knows literal patterns alone."""
    service = SimpleNamespace(configs=SimpleNamespace(acls=Lists()))
    request = message("DescribeAcls", resource_type_filter=1, pattern_type_filter=1 if version else 3, operation=1)
    request.permission_type = 1
    request.resource_name_filter = request.principal_filter = request.host_filter = None
    found = await ask(service, "DescribeAcls", version, request)
    assert [one.resource_name for one in found.resources] == names
    assert [(one.principal, one.operation, one.permission_type) for one in found.resources[0].acls] == [
        ("User:a", 3, 2)
    ]


async def test_a_filter_with_what_is_not_known_matches_nothing_by_chance() -> None:
    service = SimpleNamespace(configs=SimpleNamespace(acls=Lists()))
    unknown = message("DescribeAcls", resource_type_filter=77, pattern_type_filter=1, operation=1, permission_type=1)
    assert (await ask(service, "DescribeAcls", 3, unknown)).error_code == ErrorCode.INVALID_REQUEST
    filters = [{"resource_type_filter": 2, "pattern_type_filter": 1, "operation": 99, "permission_type": 1}]
    [result] = (await ask(service, "DeleteAcls", 3, message("DeleteAcls", filters=filters))).filter_results
    assert result.error_code == ErrorCode.INVALID_REQUEST


# The order of results: the request's if Kafka keeps it

REQUEST_S_ORDER = ["a", "b", "c"]
REFUSED_FIRST = ["a", "c", "b"]
REFUSED_LAST = ["b", "a", "c"]
CONFIGS = [{"resource_type": 2, "resource_name": name} for name in "abc"]


def partitioned(field: str, **partition: Any) -> list[dict[str, Any]]:
    return [{"name": name, field: [partition]} for name in "abc"]


@pytest.mark.parametrize(
    ("name", "version", "request_", "results", "field", "order"),
    [
        (
            "DescribeProducers",
            0,
            {"topics": [{"name": one, "partition_indexes": [0]} for one in "abc"]},
            "topics",
            "name",
            REQUEST_S_ORDER,
        ),
        ("CreateTopics", 7, {"topics": [{"name": one} for one in "abc"]}, "topics", "name", REQUEST_S_ORDER),
        ("DeleteTopics", 6, {"topics": [{"name": one} for one in "abc"]}, "responses", "name", REQUEST_S_ORDER),
        ("DeleteTopics", 5, {"topic_names": [*"abc"]}, "responses", "name", REQUEST_S_ORDER),
        ("AlterConfigs", 2, {"resources": CONFIGS}, "responses", "resource_name", REQUEST_S_ORDER),
        ("IncrementalAlterConfigs", 1, {"resources": CONFIGS}, "responses", "resource_name", REQUEST_S_ORDER),
        ("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [*"abc"]}, "coordinators", "key", REQUEST_S_ORDER),
        (
            "DescribeTransactions",
            0,
            {"transactional_ids": [*"abc"]},
            "transaction_states",
            "transactional_id",
            REQUEST_S_ORDER,
        ),
        (
            "OffsetFetch",
            8,
            {"groups": [{"group_id": one, "topics": None} for one in "abc"]},
            "groups",
            "group_id",
            REQUEST_S_ORDER,
        ),
        ("DescribeGroups", 5, {"groups": [*"abc"]}, "groups", "group_id", REFUSED_FIRST),
        (
            "OffsetCommit",
            8,
            {"group_id": "b", "topics": partitioned("partitions", partition_index=0)},
            "topics",
            "name",
            REFUSED_FIRST,
        ),
        (
            "OffsetDelete",
            0,
            {"group_id": "b", "topics": partitioned("partitions", partition_index=0)},
            "topics",
            "name",
            REFUSED_FIRST,
        ),
        ("ListOffsets", 7, {"topics": partitioned("partitions", partition_index=0)}, "topics", "name", REFUSED_LAST),
        ("DescribeConfigs", 4, {"resources": CONFIGS}, "results", "resource_name", REFUSED_LAST),
        ("DeleteGroups", 2, {"groups_names": [*"abc"]}, "results", "group_id", REFUSED_LAST),
    ],
)
async def test_results_have_the_order_that_kafka_gives_them(
    name: str, version: int, request_: dict[str, Any], results: str, field: str, order: list[str]
) -> None:
    """Of a, b and c only b is allowed (KafkaApis, ConfigAdminManager.reassembleIncrementalResponse)."""
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    api = Api(name, version, *((Operation.ALL, kind, "b") for kind in kinds))
    [items] = [one for one in dataclasses.fields(api.response) if one.name == results]
    setattr(api.response, results, [items.metadata[WIRE].item(**{field: "b"})])
    response = await api.ask(message(name, **request_))
    assert [getattr(one, field) for one in getattr(response, results)] == order


async def test_a_consumer_groups_heartbeat_needs_describe_of_each_topic_that_it_names() -> None:
    """KafkaApis.handleConsumerGroupHeartbeat: one topic that may not be described refuses the whole request."""
    allowed = (Operation.READ, ResourceType.GROUP, "g"), (Operation.DESCRIBE, ResourceType.TOPIC, "t")
    api = Api("ConsumerGroupHeartbeat", 1, *allowed)
    refused = await api.ask(message("ConsumerGroupHeartbeat", group_id="g", subscribed_topic_names=["t", "secret"]))
    assert (refused.error_code, api.seen) == (TOPIC, [])
    accepted = await api.ask(message("ConsumerGroupHeartbeat", group_id="g", subscribed_topic_names=["t"]))
    assert accepted.error_code == 0
    assert api.context.may_describe is not None
    assert [topic for topic in ("t", "secret") if api.context.may_describe(topic)] == ["t"]


async def test_members_of_a_consumer_group_are_hidden_from_who_may_not_describe_their_topics() -> None:
    allowed = (Operation.DESCRIBE, ResourceType.GROUP, "g"), (Operation.DESCRIBE, ResourceType.TOPIC, "t")
    api = Api("ConsumerGroupDescribe", 1, *allowed)
    for topic, error in (("t", 0), ("secret", TOPIC)):
        group = DescribedGroup(group_id="g", members=[Member(subscribed_topic_names=[topic], **EMPTY_ASSIGNMENTS)])
        api.response = ConsumerGroupDescribeResponse(groups=[group])
        (found,) = (await api.ask(message("ConsumerGroupDescribe", group_ids=["g"]))).groups
        assert (found.error_code, len(found.members)) == (error, 0 if error else 1)
