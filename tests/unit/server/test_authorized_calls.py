"""Calls of gRPC listeners need what Kafka's API of the same name needs: the same questions, in the same order."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire_responses.probe import KEYS, message

from tidegauge.cluster_metadata.access_lists import CLUSTER_NAME, Entry, Operation, Pattern, Permission, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import message_class
from tidegauge.kafka.frames import RequestHeader
from tidegauge.principal import Principal
from tidegauge.v1 import fetch_pb2, metadata_pb2, produce_pb2
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules
from tidegauge_broker.server.cluster.zookeeper.acl_store import AclStore
from tidegauge_broker.server.service.acting import ACTS_FOR
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.authorized_calls.calls import LAB, AuthorizedCalls
from tidegauge_broker.server.wire.authorized_calls.forms import FORMS
from tidegauge_broker.server.wire.grpc.injected_responses import METHODS, empty_response
from tidegauge_broker.server.wire.grpc.records_response import RecordsResponse
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import settled
from tidegauge_broker.server.wire.kafka.served import guarded
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache

ALICE = Principal("User", "alice")
BATCH = bytes(16) + b"\x02" + bytes(5) + b"\x10" + bytes(7)
"""The beginning of a transactional batch."""
BATCH_TEXT = base64.b64encode(BATCH).decode()
Right = tuple[Operation, ResourceType, str]
TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
BY_TOPIC, BY_GROUP, BY_CLUSTER, BY_TRANSACTION = 29, 30, 31, 53
T, U = {"topic": "t"}, {"topic": "u"}
TWO = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "u")]
CASES: list[tuple[str, dict[str, Any], str, int, dict[str, Any]]] = [
    ("Produce", {"partitions": [T, U], "acks": 1}, "Produce", 9, {
        "acks": 1, "topic_data": [{"name": one, "partition_data": [{"index": 0}]} for one in ("t", "u")]}),
    ("Produce", {"acks": 1, "transactional_id": "x", "partitions": [{**T, "records": BATCH_TEXT}]},
        "Produce", 9, {"transactional_id": "x", "acks": 1, "topic_data": [
            {"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]}),
    ("ListOffsets", {"partitions": [T, U]}, "ListOffsets", 7, {"topics": TWO}),
    ("OffsetsForLeaderEpoch", {"partitions": [T, U]}, "OffsetForLeaderEpoch", 4, {
        "topics": [{"topic": one, "partitions": [{"partition": 0}]} for one in ("t", "u")]}),
    ("ReplicaOffsetsForLeaderEpoch", {"partitions": [T]}, "OffsetForLeaderEpoch", 4, {
        "topics": [{"topic": "t", "partitions": [{"partition": 0}]}]}),
    ("Metadata", {"topics": ["t", "there"], "allow_auto_topic_creation": True}, "Metadata", 12, {
        "topics": [{"name": "t"}, {"name": "there"}]}),
    ("InitProducerId", {}, "InitProducerId", 4, {"transactional_id": None}),
    ("DeleteRecords", {"partitions": [T, U]}, "DeleteRecords", 2, {"topics": TWO}),
    ("DescribeReplicas", {}, "DescribeLogDirs", 4, {}),
    ("CreateTopics", {"topics": [{"name": "t"}, {"name": "u"}]}, "CreateTopics", 7, {
        "topics": [{"name": "t"}, {"name": "u"}]}),
    ("DeleteTopics", {"names": ["t", "u"]}, "DeleteTopics", 5, {"topic_names": ["t", "u"]}),
    ("CreatePartitions", {"topics": [{"name": "t"}, {"name": "u"}]}, "CreatePartitions", 3, {
        "topics": [{"name": "t"}, {"name": "u"}]}),
    ("ElectLeaders", {}, "ElectLeaders", 2, {}),
    ("AlterPartitionReassignments", {}, "AlterPartitionReassignments", 0, {}),
    ("ListPartitionReassignments", {}, "ListPartitionReassignments", 0, {}),
    ("DescribeConfigs", {"resource_type": 2, "resource_name": "t"}, "DescribeConfigs", 4, {
        "resources": [{"resource_type": 2, "resource_name": "t"}]}),
    ("DescribeConfigs", {"resource_name": "1"}, "DescribeConfigs", 4, {
        "resources": [{"resource_type": 4, "resource_name": "1"}]}),
    ("AlterConfigs", {"resource_type": 2, "resource_name": "t"}, "IncrementalAlterConfigs", 1, {
        "resources": [{"resource_type": 2, "resource_name": "t"}]}),
    ("AlterConfigs", {"resource_type": 4, "resource_name": ""}, "IncrementalAlterConfigs", 1, {
        "resources": [{"resource_type": 4, "resource_name": ""}]}),
    ("LeaderAndIsr", {}, "LeaderAndIsr", 7, {}),
    ("UpdateMetadata", {}, "UpdateMetadata", 8, {}),
    ("StopReplica", {}, "StopReplica", 4, {}),
    ("AlterPartition", {}, "AlterPartition", 3, {}),
    ("ControlledShutdown", {}, "ControlledShutdown", 3, {}),
    ("AllocateProducerIds", {}, "AllocateProducerIds", 0, {}),
    ("WriteMarkers", {"markers": [{"partitions": [T]}]}, "WriteTxnMarkers", 1, {
        "markers": [{"topics": [{"name": "t", "partition_indexes": [0]}]}]}),
    ("VerifyPartitions", {"transactional_id": "x", "partitions": [T]}, "AddPartitionsToTxn", 4, {
        "transactions": [{"transactional_id": "x", "verify_only": True}]}),
]  # fmt: skip
"""An RPC and its request, and the same request of Kafka's API with its version."""
APART = {"Fetch", "ReadReplica", "ReplicaFetch", "ProduceStream"}
"""RPCs with tests of their own."""


class Aborted(Exception):
    """The call has ended with a status."""


class Service(SimpleNamespace):
    """A controller with one topic."""

    is_controller = True
    settings = SimpleNamespace(flag=lambda _: True)

    def metadata(self, caller: Caller, names: list[str], **_: Any) -> Any:
        error = ErrorCode.NONE if names == ["there"] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return SimpleNamespace(topics=[SimpleNamespace(error=error)])


class Call:
    """A call's context."""

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code.name, details)


class Lists(AclStore):
    """Access control lists that note the questions they get."""

    def __init__(self, rights: set[Right]) -> None:
        authorizer = AclAuthorizer(Rules())
        for operation, kind, name in rights:
            entry = Entry("User:alice", "10.0.0.1", operation, Permission.ALLOW)
            authorizer.put(Pattern(kind, name), [*authorizer.entries(Pattern(kind, name)), entry])
        super().__init__(None, authorizer)  # type: ignore[arg-type] # decides alone
        self.asked: list[tuple[Any, ...]] = []

    def allows(
        self, caller: Caller, operation: Operation, kind: ResourceType, name: str, api: str, *, logs: bool = True
    ) -> bool:
        self.asked.append((str(caller.principal), caller.host, operation, kind, name, api, logs))
        return super().allows(caller, operation, kind, name, api, logs=logs)

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: ResourceType, api: str) -> bool:
        self.asked.append((str(caller.principal), caller.host, operation, kind, api))
        return super().allows_somewhere(caller, operation, kind, api)


class Rpc:
    """One RPC behind its guard; notes what reaches the handler."""

    def __init__(self, name: str, *rights: Right, response: Any = None) -> None:
        self.lists = Lists(set(rights))
        self.seen: list[Any] = []
        self._name = name
        self._response = response
        calls = AuthorizedCalls(self.lists, Service(), "L", lambda: 0)  # type: ignore[arg-type] # what guards ask of it
        handler = grpc.unary_unary_rpc_method_handler(self._handle)
        self._handler = calls.around("tidegauge.v1.Service", name, handler).unary_unary

    async def _handle(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        return empty_response(self._name) if self._response is None else self._response

    async def ask(self, **fields: Any) -> Any:
        request = ParseDict(fields, GetMessageClass(METHODS[self._name].input_type)())
        return await in_a_call(lambda: self._handler(request, Call()))


async def in_a_call(call: Callable[[], Any]) -> Any:
    """Run as a call of alice, in a task of its own."""

    async def as_alice() -> Any:
        ACTS_FOR.set(ALICE)
        return await call()

    return await asyncio.create_task(as_alice())


async def asked_of_kafka(key: int, version: int, request: Any, lists: Lists) -> None:
    """Send a request of Kafka's protocol through its guard."""

    def handle(request: Any, context: Context) -> Any:
        return message_class(key, response=True)()

    caller = Caller("c", "L", host="10.0.0.1", principal=ALICE)
    header = RequestHeader(key, version, 1, "", 0)
    sessions = FetchSessionCache(1, lambda: 1)
    context = Context(Service(), caller, sessions, lambda: 0, header)  # type: ignore[arg-type] # what guards ask of it
    await settled(guarded({key: handle}, lists)[key](request, context))


RESOURCES = [(TOPIC, "t"), (TOPIC, "u"), (TOPIC, "there"), (GROUP, "g"), (TRANSACTION, "x"), (CLUSTER, CLUSTER_NAME)]
OPERATIONS = [
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
    Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
]  # fmt: skip
RIGHTS = [(operation, kind, name) for kind, name in RESOURCES for operation in OPERATIONS]


def test_every_rpc_has_a_form_and_a_case() -> None:
    """A method that is added needs what Kafka's API of that kind needs."""
    assert FORMS.keys() == METHODS.keys()
    assert {rpc for rpc, *_ in CASES} | APART == FORMS.keys()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CASES), st.sets(st.sampled_from(RIGHTS)) | st.just(set(RIGHTS)), st.booleans())
def test_both_wires_ask_the_same_of_the_lists(
    case: tuple[str, dict[str, Any], str, int, dict[str, Any]], rights: set[Right], every_describe: bool
) -> None:
    """The same operations on the same resources in the same order, with the same lines in the audit log."""
    rpc, fields, api, version, of_kafka = case
    if every_describe:
        rights = rights | {(Operation.DESCRIBE, kind, name) for kind, name in RESOURCES}
    one, other = Rpc(rpc, *rights), Lists(rights)

    async def both() -> None:
        try:
            await one.ask(**fields)
        except Aborted:
            assert not one.seen
        await asked_of_kafka(KEYS[api], version, message(api, **of_kafka), other)

    asyncio.run(both())
    assert one.lists.asked == other.asked
    assert one.lists.asked


def errors_of(response: Message) -> set[int]:
    """Return a response's errors, NONE too; check that each has a sentence."""
    found: set[int] = set()
    fields = response.DESCRIPTOR.fields_by_name
    if "error" in fields:
        words = getattr(response, "error_message", None) or getattr(response, "message", None)
        assert not response.error or words is None or words  # type: ignore[attr-defined] # it has the field
        found.add(response.error)  # type: ignore[attr-defined] # likewise
    for field, value in response.ListFields():
        if field.message_type is not None:
            for item in (value,) if isinstance(value, Message) else value:
                found |= errors_of(item)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[3]}")
async def test_without_any_right_nothing_reaches_the_handler(case: Any) -> None:
    """But for the brokers in Metadata."""
    rpc, fields, *_ = case
    one = Rpc(rpc)
    if rpc == "DescribeReplicas":
        with pytest.raises(Aborted, match=r"PERMISSION_DENIED.*Cluster authorization failed\."):
            await one.ask(**fields)
        return
    response = await one.ask(**fields)
    assert errors_of(response) - {0} <= {BY_TOPIC, BY_GROUP, BY_CLUSTER, BY_TRANSACTION}
    assert errors_of(response) - {0}
    assert not one.seen or (rpc == "Metadata" and not one.seen[0].topics)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[3]}")
async def test_with_all_rights_a_request_reaches_the_handler_as_it_is(case: Any) -> None:
    rpc, fields, *_ = case
    one = Rpc(rpc, *RIGHTS)
    response = await one.ask(**fields)
    assert one.seen == [ParseDict(fields, GetMessageClass(METHODS[rpc].input_type)())]
    assert response == empty_response(rpc)


READS_T: Right = (Operation.READ, TOPIC, "t")
WRITES_T: Right = (Operation.WRITE, TOPIC, "t")
ACTS: Right = (Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)


def results(response: Any, field: str) -> list[tuple[str, int]]:
    """Return the name and the error of each result."""
    return [
        (getattr(one, "topic", "") or one.name, one.error if hasattr(one, "error") else one.status.error)
        for one in getattr(response, field)
    ]


@pytest.mark.parametrize(
    ("rpc", "fields", "rights", "field", "error"),
    [
        ("Produce", {"acks": -1, "partitions": [T, U]}, [WRITES_T], "partitions", BY_TOPIC),
        ("DeleteTopics", {"names": ["t", "u"]}, [(Operation.DELETE, TOPIC, "t")], "topics", BY_TOPIC),
        ("ListOffsets", {"partitions": [T, U]}, [READS_T], "partitions", BY_TOPIC),
    ],
)
async def test_what_is_allowed_is_handled_and_the_rest_has_its_error(
    rpc: str, fields: dict[str, Any], rights: list[Right], field: str, error: int
) -> None:
    one = Rpc(rpc, *rights)
    response = await one.ask(**fields)
    assert results(response, field) == [("u", error)]
    [seen] = one.seen
    handled = getattr(seen, next(iter(name for name in fields if name in {"partitions", "names"})))
    assert [getattr(item, "topic", item) for item in handled] == ["t"]


async def test_a_fetch_reads_what_may_be_read() -> None:
    wanted = fetch_pb2.FetchPartitionResult(topic="t")
    one = Rpc("Fetch", READS_T, response=RecordsResponse(fetch_pb2.FetchResponse(), [(wanted, b"records")]))
    response = (await one.ask(partitions=[T, U])).whole()
    assert results(response, "partitions") == [("t", 0), ("u", BY_TOPIC)]
    assert response.partitions[0].records == b"records"
    assert [item.topic for item in one.seen[0].partitions] == ["t"]
    none = Rpc("Fetch")
    assert results(await none.ask(partitions=[T]), "partitions") == [("t", BY_TOPIC)]
    assert not none.seen, "a fetch of nothing would wait"
    assert (await Rpc("ReadReplica").ask(topic="t")).error == BY_TOPIC
    assert (await Rpc("ReadReplica", READS_T).ask(topic="t")).error == 0


async def test_lists_leave_out_what_may_not_be_described() -> None:
    topics = metadata_pb2.MetadataResponse(topics=[{"name": "t"}, {"name": "u"}])  # type: ignore[list-item]
    every = Rpc("Metadata", READS_T, response=topics)
    assert [item.name for item in (await every.ask(all_topics=True)).topics] == ["t"]


async def test_a_topic_that_may_not_be_described_looks_the_same_whether_it_exists_or_not() -> None:
    one = Rpc("Metadata")
    response = await one.ask(topics=["there", "not-there"])
    assert results(response, "topics") == [("there", BY_TOPIC), ("not-there", BY_TOPIC)]
    assert response.topics[0].error_message == "Not authorized to access topics: [there]"


async def test_a_produce_without_acks_ends_the_call() -> None:
    """Kafka closes the connection: no response could notify the client."""
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await Rpc("Produce").ask(acks=0, partitions=[T])


async def streamed(rpc: str, requests: list[Any], *rights: Right) -> tuple[list[Any], list[Any]]:
    """Return what reaches the handler of a stream, and its responses."""
    seen: list[Any] = []

    async def handle(stream: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in stream:
            seen.append(request)
            response = empty_response(rpc)
            if rpc == "ProduceStream":
                response.correlation_id = request.correlation_id  # type: ignore[attr-defined] # it has the field
            yield response

    async def sent() -> AsyncIterator[Any]:
        for request in requests:
            yield request

    calls = AuthorizedCalls(Lists(set(rights)), Service(), "L", lambda: 0)  # type: ignore[arg-type]
    handler = calls.around("tidegauge.v1.Service", rpc, grpc.stream_stream_rpc_method_handler(handle))

    async def call() -> list[Any]:
        return [response async for response in handler.stream_stream(sent(), Call())]

    return seen, await in_a_call(call)


async def test_each_request_of_a_producers_stream_is_judged() -> None:
    made = produce_pb2.ProduceRequest
    partitions: Any = [T, U]
    only: Any = [U]
    requests = [
        made(correlation_id=1, acks=1, partitions=partitions),
        made(correlation_id=2, acks=1, partitions=only),
        made(correlation_id=3, acks=1, partitions=partitions[:1]),
    ]
    seen, responses = await streamed("ProduceStream", requests, WRITES_T)
    assert [[item.topic for item in one.partitions] for one in seen] == [["t"], [], ["t"]]
    assert [(one.correlation_id, results(one, "partitions")) for one in responses] == [
        (1, [("u", BY_TOPIC)]),
        (2, [("u", BY_TOPIC)]),
        (3, []),
    ]
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await streamed("ProduceStream", [made(acks=0, partitions=only)])


async def test_followers_need_cluster_action_at_each_fetch() -> None:
    request = fetch_pb2.ReplicaFetchRequest(request_id=7, replica_id=1)
    seen, responses = await streamed("ReplicaFetch", [request], ACTS)
    assert (len(seen), len(responses)) == (1, 1)
    seen, responses = await streamed("ReplicaFetch", [request, request])
    assert not seen
    assert [(one.request_id, one.error) for one in responses] == [(7, BY_TOPIC)], "KafkaApis gives this error"


async def test_the_lab_needs_cluster_action() -> None:
    async def handle(request: Any, context: Any) -> str:
        return "done"

    for rights in ({ACTS}, set[Right]()):
        calls = AuthorizedCalls(Lists(rights), Service(), "L", lambda: 0)  # type: ignore[arg-type]
        handler = calls.around(LAB, "SetFault", grpc.unary_unary_rpc_method_handler(handle))
        if rights:
            assert await in_a_call(lambda one=handler: one.unary_unary(None, Call())) == "done"
        else:
            with pytest.raises(Aborted, match="PERMISSION_DENIED"):
                await in_a_call(lambda one=handler: one.unary_unary(None, Call()))


def test_health_and_reflection_need_nothing() -> None:
    calls = AuthorizedCalls(Lists(set()), Service(), "L", lambda: 0)  # type: ignore[arg-type]
    handler = grpc.unary_unary_rpc_method_handler(print)
    assert calls.around("grpc.health.v1.Health", "Check", handler) is handler
