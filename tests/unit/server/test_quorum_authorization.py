"""Access control lists at the controllers' listener (KIP-801), and requests that brokers forward (KIP-590)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kafka.random_messages import random_struct
from tests.unit.server.one_controller import OneController, controller_at, until

from tidegauge.cluster_metadata.access_lists import Operation, PatternType, Permission, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge.kafka.frames import codec_of, joined
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import (
    create_acls,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_quorum,
    incremental_alter_configs,
    vote,
)
from tidegauge.kafka.kraft.messages.envelope import EnvelopeRequest
from tidegauge.principal import Principal
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller import envelope as envelopes
from tidegauge_broker.server.quorum.controller.authorization import OF_CLUSTER
from tidegauge_broker.server.wire.kafka.failed_responses import errors_in
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN
from tidegauge_controller.raft import events

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALICE = Principal("User", "alice")
OF_TOPICS = {
    *(apis.API_VERSIONS, apis.CREATE_TOPICS, apis.DELETE_TOPICS, apis.CREATE_PARTITIONS),
    *(apis.INCREMENTAL_ALTER_CONFIGS, apis.ALTER_CONFIGS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE),
}
"""APIs that need nothing of the cluster: each topic is asked about, or nothing."""


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[OneController]:
    """A controller with an authorizer; brokers and this test's own principal are super users."""
    settings = {"authorizer_class_name": AUTHORIZER, "super_users": "User:ANONYMOUS"}
    async with controller_at(tmp_path, **settings) as one:
        await one.register(0)
        await one.create("t")
        yield one


def allowing(principal: Principal, operation: Operation, kind: ResourceType, name: str) -> create_acls.AclCreation:
    return create_acls.AclCreation(kind, name, PatternType.LITERAL, str(principal), "*", operation, Permission.ALLOW)


async def allow(one: OneController, operation: Operation, kind: ResourceType, name: str) -> None:
    entry = allowing(ALICE, operation, kind, name)
    response = await one.ask(apis.CREATE_ACLS, create_acls.CreateAclsRequest([entry]))
    assert response.results[0].error_code == 0


def in_envelope(key: int, message: Any, principal: bytes | None = b"\0\0\x05User\x06alice\0\0") -> EnvelopeRequest:
    version = KRAFT_APIS[key].last
    frame = joined(codec_of(key, version, KRAFT_PROTOCOL).request_frame(5, "client", message))[4:]
    return EnvelopeRequest(frame, principal, bytes([127, 0, 0, 1]))


async def forwarded(one: OneController, key: int, message: Any) -> Any:
    """Let a broker forward a request of alice's; return the inner response."""
    response = await one.ask(apis.ENVELOPE, in_envelope(key, message))
    assert response.error_code == 0
    data = memoryview(bytes(response.response_data))
    codec = codec_of(key, KRAFT_APIS[key].last, KRAFT_PROTOCOL)
    assert int.from_bytes(data[:4], "big") == 5
    found, end = codec.decode_response(data, 5)  # correlation id, no tags
    assert end == len(data)
    return found


def new_topic(name: str) -> create_topics.CreateTopicsRequest:
    return create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name, 1, 1)])


@pytest.mark.parametrize("key", sorted(OF_CLUSTER), ids=lambda key: KRAFT_APIS[key].name)
async def test_a_stranger_may_do_nothing_with_the_cluster(key: int, guarded: OneController):
    """ControllerApis: CLUSTER_AUTHORIZATION_FAILED before anything is looked at; without the guard it would be done."""
    end = guarded.node.log.end_offset
    kind = KRAFT_PROTOCOL.message_class(key, response=False)
    message = random_struct(kind, KRAFT_APIS[key].last, random.Random(key))
    response = await guarded.ask(key, message, principal=ALICE)
    assert errors_in(response) <= {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert guarded.node.log.end_offset == end
    assert guarded.controller.active is not None


async def test_every_api_has_a_guard_or_asks_about_topics(guarded: OneController):
    """None may be forgotten: an API that is served is in one of the two sets."""
    assert set(guarded.handlers) == {*OF_CLUSTER, *OF_TOPICS}


async def test_topics_need_an_entry_each(guarded: OneController):
    """CREATE and DELETE of a topic, ALTER_CONFIGS of its settings; the others of the request are not affected."""
    await allow(guarded, Operation.CREATE, ResourceType.TOPIC, "mine")
    topics = [create_topics.CreatableTopic(name, 1, 1) for name in ("mine", "other")]
    created = await forwarded(guarded, apis.CREATE_TOPICS, create_topics.CreateTopicsRequest(topics=topics))
    assert {one.name: one.error_code for one in created.topics} == {
        "mine": 0,
        "other": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    states = [delete_topics.DeleteTopicState("mine"), delete_topics.DeleteTopicState("t")]
    await allow(guarded, Operation.DELETE, ResourceType.TOPIC, "mine")
    deleted = await forwarded(guarded, apis.DELETE_TOPICS, delete_topics.DeleteTopicsRequest(states, timeout_ms=9_000))
    assert {one.name: one.error_code for one in deleted.responses} == {
        "mine": 0,
        "t": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    config = incremental_alter_configs.AlterableConfig("retention.ms", 0, "5000")
    resource = incremental_alter_configs.AlterConfigsResource(2, "t", [config])
    altered = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
    refused = await forwarded(guarded, apis.INCREMENTAL_ALTER_CONFIGS, altered)
    assert refused.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await allow(guarded, Operation.ALTER_CONFIGS, ResourceType.TOPIC, "t")
    assert (await forwarded(guarded, apis.INCREMENTAL_ALTER_CONFIGS, altered)).responses[0].error_code == 0


async def test_a_topic_by_id_is_not_deleted_and_its_name_stays_hidden(guarded: OneController):
    """ControllerApis.deleteTopics: by id alone a stranger learns no name."""
    listed = await guarded.ask(apis.CREATE_TOPICS, new_topic("secret"))
    state = delete_topics.DeleteTopicState(None, listed.topics[0].topic_id)
    request = delete_topics.DeleteTopicsRequest([state], timeout_ms=9_000)
    response = (await forwarded(guarded, apis.DELETE_TOPICS, request)).responses[0]
    assert (response.name, response.error_code) == (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert "secret" in guarded.controller.image.topic_ids


async def test_entries_are_described_and_removed(guarded: OneController):
    """KIP-140: a filter matches entries; a removed entry no longer allows."""
    await allow(guarded, Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    assert (await forwarded(guarded, apis.CREATE_TOPICS, new_topic("a"))).topics[0].error_code == 0
    anything = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    described = await guarded.ask(apis.DESCRIBE_ACLS, anything)
    assert [(one.resource_name, one.acls[0].principal) for one in described.resources] == [
        ("kafka-cluster", "User:alice")
    ]
    wanted = delete_acls.DeleteAclsFilter(1, None, 1, "User:alice", None, 1, 1)
    removed = await guarded.ask(apis.DELETE_ACLS, delete_acls.DeleteAclsRequest([wanted]))
    assert removed.filter_results[0].matching_acls[0].principal == "User:alice"
    refused = (await forwarded(guarded, apis.CREATE_TOPICS, new_topic("b"))).topics[0]
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_without_an_authorizer_there_are_no_entries(tmp_path: Path):
    """AclApis: SECURITY_DISABLED, so that tools say why there are none."""
    async with controller_at(tmp_path) as one:
        entry = allowing(ALICE, Operation.READ, ResourceType.TOPIC, "t")
        response = await one.ask(apis.CREATE_ACLS, create_acls.CreateAclsRequest([entry]))
        assert response.results[0].error_code == ErrorCode.SECURITY_DISABLED


async def test_what_may_not_be_forwarded_is_refused(guarded: OneController):
    """EnvelopeUtils: only APIs of clients, with a principal and an address that can be read."""
    cases = {
        ErrorCode.INVALID_REQUEST: in_envelope(apis.VOTE, vote.VoteRequest()),
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: in_envelope(apis.CREATE_TOPICS, new_topic("a"), b"\0\1"),
        ErrorCode.UNSUPPORTED_VERSION: EnvelopeRequest(b"\0\x13\0\x63\0\0\0\1\xff\xff\0", b"\0\0\2a\2a\0\0", bytes(4)),
    }
    for error, message in cases.items():
        assert (await guarded.ask(apis.ENVELOPE, message)).error_code == error
    no_address = in_envelope(apis.CREATE_TOPICS, new_topic("a"))
    no_address.client_host_address = b"abc"
    assert (await guarded.ask(apis.ENVELOPE, no_address)).error_code == ErrorCode.INVALID_REQUEST
    assert (
        await guarded.ask(apis.ENVELOPE, in_envelope(apis.CREATE_TOPICS, new_topic("a"), None))
    ).error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


async def test_an_inner_not_controller_is_the_envelopes_own_error(tmp_path: Path):
    """RequestChannel.buildResponseSend: by it a broker looks for the active controller, and sends the request again."""
    async with controller_at(tmp_path) as one:
        assert one.controller.active is not None
        one.store.passes.clear()
        one.driver.give(events.Resign(one.controller.active.epoch))
        await until(lambda: one.controller.active is None)
        response = await one.ask(apis.ENVELOPE, in_envelope(apis.CREATE_TOPICS, new_topic("a")))
        assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)


async def test_a_defect_costs_the_forwarded_request_and_not_the_brokers_connection(guarded: OneController):
    """The broker forwards the requests of all its clients over this connection."""

    def fails(_: object) -> None:
        raise RuntimeError("a defect")

    guarded.handlers[apis.CREATE_TOPICS] = guarded.handlers[apis.CREATE_TOPICS]._replace(handle=fails)
    response = await guarded.ask(apis.ENVELOPE, in_envelope(apis.CREATE_TOPICS, new_topic("a")))
    assert (response.error_code, response.response_data) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


async def test_describe_cluster_of_brokers_is_refused_at_a_controller(guarded: OneController):
    """KIP-919: MISMATCHED_ENDPOINT_TYPE tells a client that it has a controller's address."""
    message = describe_cluster.DescribeClusterRequest(endpoint_type=1)
    response = await guarded.ask(apis.DESCRIBE_CLUSTER, message)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_what_is_in_a_large_envelope_leaves_the_loop_to_others_and_is_the_same(tmp_path: Path):
    """A broker may forward what any client sends; EnvelopeUtils.handleEnvelopeRequest runs on a thread of its own."""
    topics = [describe_quorum.TopicData(f"topic-{one}", [describe_quorum.PartitionData(one)]) for one in range(5_000)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with controller_at(tmp_path) as one:
        counting = asyncio.create_task(count())
        found = await forwarded(one, apis.DESCRIBE_QUORUM, describe_quorum.DescribeQuorumRequest(topics))
        counting.cancel()
    errors = [(topic.topic_name, topic.partitions[0].error_code) for topic in found.topics]
    assert errors == [(topic.topic_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in topics]
    assert turns >= 2 * 2 * 5_000 // ITEMS_PER_TURN


async def test_a_large_envelope_that_holds_no_request_is_refused(tmp_path: Path):
    topics = [describe_quorum.TopicData(f"topic-{one}", [describe_quorum.PartitionData(one)]) for one in range(5_000)]
    envelope = in_envelope(apis.DESCRIBE_QUORUM, describe_quorum.DescribeQuorumRequest(topics))
    envelope.request_data = bytes(envelope.request_data)[:-100]
    async with controller_at(tmp_path) as one:
        assert (await one.ask(apis.ENVELOPE, envelope)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_large_envelope_whose_broker_has_closed_its_connection_is_not_handled(is_open: bool):
    """A broker that waits too long sends the request again (NodeToControllerRequestThread): attempts do not add up."""
    handled: list[Call] = []
    topics = [describe_quorum.TopicData(f"topic-{one}", []) for one in range(5_000)]
    envelope = in_envelope(apis.DESCRIBE_QUORUM, describe_quorum.DescribeQuorumRequest(topics))
    [served] = envelopes.served({apis.DESCRIBE_QUORUM: Served(apis.DESCRIBE_QUORUM, handled.append, is_forwarded=True)})
    served.handle(Call(apis.ENVELOPE, 0, envelope, lambda _: None, lambda *_: None, is_open=lambda: is_open))
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(handled) == is_open
