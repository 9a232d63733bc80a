"""No name that a principal has no right to reaches a handler, whatever else is wrong with the request.

Every API of both wires, in every version of Kafka's: with each item named twice, without items, and with one item of
two allowed. A guard does not rely on a handler that would refuse such a request for another reason: both wires have
handlers of their own behind the same guards.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from sample_requests import sample
from tests.unit.server.test_authorization import Api
from tests.unit.server.test_authorized_calls import CASES, RESOURCES, Aborted, Rpc, results

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.apis import APIS
from tidegauge.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from tidegauge_broker.server.wire.kafka.request import CloseConnection
from tidegauge_broker.server.wire.kafka.served import SERVED

KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
OF_ONE_GROUP = {apis.JOIN_GROUP, apis.HEARTBEAT, apis.LEAVE_GROUP, apis.SYNC_GROUP}
"""APIs whose lists are about the one group that is judged."""
FILTERING = {apis.LIST_GROUPS, apis.LIST_TRANSACTIONS, apis.DESCRIBE_CLUSTER}
"""APIs whose requests name nothing that is judged: their filters are not names to act on."""
TOPIC, GROUP = 29, 30


def twice(message: Any) -> Any:
    """Return a request whose top lists have each item twice."""
    lists = {name: [*value, *copy.deepcopy(value)] for name, value in vars_of(message) if is_list(value)}
    return dataclasses.replace(message, **lists)


def empty(message: Any) -> Any:
    """Return a request whose top lists are empty."""
    return dataclasses.replace(message, **{name: [] for name, value in vars_of(message) if is_list(value)})


def vars_of(message: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(message):
        yield field.name, getattr(message, field.name)


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a message or a part of one; a default is none."""
    if isinstance(value, str):
        yield from (value,) if value else ()
    elif is_list(value):
        for item in value:
            yield from texts(item)
    elif dataclasses.is_dataclass(value):
        for _, item in vars_of(value):
            yield from texts(item)


def of_items(message: Any, at: int) -> set[str]:
    """Return the texts in the item at a position of each top list."""
    return {text for _, value in vars_of(message) if is_list(value) for text in texts(value[at : at + 1])}


SAMPLES = [
    (key, version)
    for key, api in sorted(SERVED.items())
    if api.guard is not None
    for version in range(APIS[key].first, APIS[key].last + 1)
]


async def seen_by_handler(key: int, version: int, request: Any, *allowed: str) -> tuple[set[str], Api]:
    """Return the texts that reach the handler, and the API.

    Args:
        key: of the API.
        version: of the request.
        request: the message.
        allowed: names with which the principal may do everything; with the cluster it may do nothing.
    """
    api = Api(APIS[key].name, version, *((Operation.ALL, kind, name) for kind in KINDS for name in allowed))
    try:
        await api.ask(request)
    except CloseConnection:
        assert request.acks == 0
    return set(texts(api.seen)), api


@pytest.mark.parametrize(("key", "version"), SAMPLES)
async def test_without_rights_no_name_reaches_a_handler(key: int, version: int) -> None:
    """A repeated name is no way round a list, nor is a request without items."""
    request = sample(key, version, "full")
    names = of_items(request, 0) | of_items(request, 1)
    for shape in (request, twice(request)):
        seen, api = await seen_by_handler(key, version, shape)
        if key == apis.FETCH and api.seen:
            assert api.context.may_read is not None
            assert not any(map(api.context.may_read, names))
        elif key not in FILTERING:
            assert not seen & names
    seen, api = await seen_by_handler(key, version, empty(request))
    if key not in FILTERING | {apis.FETCH, apis.PRODUCE}:
        assert not seen, "a group or a transactional id that is not allowed"


@pytest.mark.parametrize(("key", "version"), [one for one in SAMPLES if one[0] not in OF_ONE_GROUP])
async def test_of_two_names_only_the_allowed_one_reaches_a_handler(key: int, version: int) -> None:
    request = sample(key, version, "full")
    at_top = {value for _, value in vars_of(request) if isinstance(value, str)}
    allowed = {*of_items(request, 0), *at_top}
    refused = of_items(request, 1) - allowed
    for shape in (request, twice(request)):
        seen, api = await seen_by_handler(key, version, shape, *allowed)
        if key == apis.FETCH and api.seen:
            assert api.context.may_read is not None
            assert not any(map(api.context.may_read, refused))
        elif key not in FILTERING:
            assert not seen & refused


@pytest.mark.parametrize("name", ["CreateTopics", "DeleteTopics", "CreatePartitions", "AlterUserScramCredentials"])
async def test_a_broker_that_is_not_the_controller_says_so_without_its_handler(name: str) -> None:
    """It could become the controller between the guard's look and the handler's."""
    [key] = [key for key, api in APIS.items() if api.name == name]
    request = sample(key, APIS[key].last, "full")
    api = Api(name, APIS[key].last)
    api.is_controller = False
    response = await api.ask(request)
    assert not api.seen
    [(_, found)] = [(field, value) for field, value in vars_of(response) if is_list(value)]
    assert {one.error_code for one in found} == {ErrorCode.NOT_CONTROLLER}


async def test_a_repeated_topic_has_kafkas_error_and_a_line_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    """KafkaApis.handleCreateTopicsRequest asks of each name, and finds the repetition whoever asks."""
    caplog.set_level("INFO", "tidegauge.authorizer")
    api = Api("CreateTopics", 7)
    request = sample(apis.CREATE_TOPICS, 7, "full")
    response = await api.ask(twice(request))
    assert [(one.error_code, one.error_message) for one in response.topics] == 4 * [
        (ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
    ]
    assert caplog.text.count("Denied Operation = Create") == 2


async def test_a_group_that_is_named_twice_shows_no_topic_that_may_not_be_described() -> None:
    """KIP-709: several groups in a request. Once with all its topics, once with one of them."""
    api = Api(
        *("OffsetFetch", 9),
        (Operation.DESCRIBE, ResourceType.GROUP, "g"),
        (Operation.DESCRIBE, ResourceType.TOPIC, "t"),
    )
    offsets = [OffsetFetchResponseTopics(name) for name in ("t", "u")]
    api.response = OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup("g", offsets), OffsetFetchResponseGroup("g", offsets[:1])]
    )
    asked = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in ("t", "u")]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics) for topics in (None, asked)])
    response = await api.ask(request)
    assert [[topic.name for topic in group.topics] for group in response.groups] == [["t"], ["t", "u"]]
    [refused] = response.groups[1].topics[1].partitions
    assert refused.error_code == TOPIC
    assert [[topic.name for topic in group.topics or ()] for group in api.seen[0].groups] == [[], ["t"]]


# gRPC

NAMES = {"t", "u", "there", "g", "x"}
WITH_LISTS = [case for case in CASES if any(isinstance(value, list) for value in case[1].values())]
OF_LISTS = {"ListGroups", "ListTransactions", "DescribeTransaction"}
"""They show what may be described of what there is, behind their handlers."""


def named(messages: list[Any]) -> set[str]:
    """Return the names in protobuf messages."""
    found: set[str] = set()
    for message in messages:
        for field, value in message.ListFields():
            parts = [*value] if field.is_repeated else [value]
            found |= {part for part in parts if isinstance(part, str)}
            found |= named([part for part in parts if hasattr(part, "ListFields")])
    return found & NAMES


async def rpc_names(rpc: str, fields: dict[str, Any], *allowed: Any) -> tuple[set[str], Any]:
    one = Rpc(rpc, *allowed)
    response = None
    try:
        response = await one.ask(**fields)
    except Aborted:
        assert not one.seen
    return named(one.seen), response


def shaped(fields: dict[str, Any], times: int) -> dict[str, Any]:
    return {name: value * times if isinstance(value, list) else value for name, value in fields.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[3]}")
@pytest.mark.parametrize("times", [0, 1, 2])
async def test_without_rights_no_name_reaches_a_method(case: Any, times: int) -> None:
    rpc, fields, *_ = case
    if rpc in OF_LISTS:
        return
    seen, _ = await rpc_names(rpc, shaped(fields, times))
    assert not seen or (rpc, times, seen) == ("Produce", 0, {"x"}), "a Produce without records writes nothing"


@pytest.mark.parametrize("case", WITH_LISTS, ids=lambda case: f"{case[0]} {case[3]}")
@pytest.mark.parametrize("times", [1, 2])
async def test_of_two_names_only_the_allowed_one_reaches_a_method(case: Any, times: int) -> None:
    rpc, fields, *_ = case
    rights = [(Operation.ALL, kind, name) for kind, name in RESOURCES if name not in {"u", "there", "kafka-cluster"}]
    seen, _ = await rpc_names(rpc, shaped(fields, times), *rights)
    assert not seen & {"u", "there"}


async def test_an_empty_name_is_judged_like_any_other() -> None:
    seen = Rpc("DeleteTopics")
    response = await seen.ask(names=[""])
    assert not seen.seen
    assert results(response, "topics") == [("", TOPIC)]


@pytest.mark.parametrize("rpc", ["CreateTopics", "CreatePartitions"])
async def test_a_repeated_topic_is_refused_in_words(rpc: str) -> None:
    response = await Rpc(rpc).ask(topics=[{"name": "t"}, {"name": "t"}])
    assert all(one.status.message for one in response.topics)
    assert {one.status.error for one in response.topics} <= {ErrorCode.INVALID_REQUEST, TOPIC}
