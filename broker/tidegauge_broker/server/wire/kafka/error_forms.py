"""The response of every API to a request that fails as a whole, as its ``getErrorResponse`` makes it. Pure.

Rules (``AbstractRequest.getErrorResponse`` of each request class of Apache Kafka 3.9.1):
    1. The error stands at the top of the response where its version has a place there, and in a result for each topic,
       partition, group or resource that the request names. ``FORMS`` says which list of the response names which list
       of the request, by version; some requests name nothing beside an error at the top (Fetch from version 13 on).
    2. An error of no further explanation has no message, but for the APIs whose classes always give one
       (``is_explained``).
    3. Produce with acks=0 has no response. Neither have ElectLeaders v0 without partitions, a Metadata request for all
       topics, or DescribeLogDirs below v3 a place for the error: their responses are empty, in Kafka too.

Two differences, both for the clients: a Fetch has empty records and not null (KAFKA-18646), and
DescribeUserScramCredentials names the users.
tests/unit/server/test_error_forms.py compares every API and version with what Kafka's classes write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.apis import message_class
from tidegauge.kafka.fields import Versions, wires_of

_EACH = Versions.of("0+")
_NOTHING: Mapping[str, Any] = {}
ERROR_FIELDS = ("error_code", "partition_error_code")


class Part(NamedTuple):
    """A list of a response that names what a list of the request names.

    Attributes:
        results: field of the response.
        items: field of the request; of a list inside another one ``outer.inner``.
        names: fields of a result, by which field of the item they are; ``""`` is the item itself.
        within: of the lists inside each of them.
        versions: in which the results are named.
        of_outer: fields of a result that are those of the item's owner, where items is ``outer.inner``.
        values: fields of a result that do not have their default beside an error.
    """

    results: str
    items: str
    names: Mapping[str, str]
    within: Part | None = None
    versions: Versions = _EACH
    of_outer: Mapping[str, str] = _NOTHING
    values: Mapping[str, Any] = _NOTHING


class Form(NamedTuple):
    """The form of an API's response to a request that fails.

    Attributes:
        parts: its lists.
        values: fields at its top that do not have their default beside an error.
        names: fields at its top, by which field of the request they are.
        is_explained: whether an error always has a message.
    """

    parts: tuple[Part, ...] = ()
    values: Mapping[str, Any] = _NOTHING
    names: Mapping[str, str] = _NOTHING
    is_explained: bool = False


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _by_topic(name: str = "name", partitions: str = "partitions", partition: str = "partition_index") -> Part:
    """Return the part of a response whose topics and partitions have the request's own names."""
    return Part("topics", "topics", _same(name), Part(partitions, partitions, _same(partition)))


_AT_TOP = Form()
_BY_TOPIC = Form((_by_topic(),))
_BY_RESOURCE = Form((Part("responses", "resources", _same("resource_type", "resource_name")),))
_NUMBER = {"partition_index": ""}
_COORDINATOR = {"node_id": -1, "host": "", "port": -1}
_BELONGS_TO_TOPIC = {"topic_name": "topic_name"}

FORMS: dict[int, Form] = {
    apis.PRODUCE: Form(
        (
            Part(
                "responses",
                "topic_data",
                _same("name"),
                Part("partition_responses", "partition_data", _same("index"), values={"base_offset": -1}),
            ),
        )
    ),
    apis.FETCH: Form(
        (
            Part(
                "responses",
                "topics",
                _same("topic"),
                Part("partitions", "partitions", {"partition_index": "partition"}, values={"high_watermark": -1}),
                Versions.of("0-12"),
            ),
        ),
        names=_same("session_id"),
    ),
    apis.LIST_OFFSETS: _BY_TOPIC,
    apis.METADATA: Form((Part("topics", "topics", _same("name", "topic_id")),)),
    apis.LEADER_AND_ISR: Form(
        (
            Part("partition_errors", "ungrouped_partition_states", _same("topic_name", "partition_index")),
            Part(
                "partition_errors",
                "topic_states.partition_states",
                _same("partition_index"),
                versions=Versions.of("2-4"),
                of_outer=_BELONGS_TO_TOPIC,
            ),
            Part(
                "topics",
                "topic_states",
                _same("topic_id"),
                Part("partition_errors", "partition_states", _same("partition_index")),
                Versions.of("5+"),
            ),
        )
    ),
    apis.STOP_REPLICA: Form(
        (
            Part("partition_errors", "ungrouped_partitions", _same("topic_name", "partition_index")),
            Part("partition_errors", "topics.partition_indexes", _NUMBER, of_outer={"topic_name": "name"}),
            Part(
                "partition_errors",
                "topic_states.partition_states",
                _same("partition_index"),
                of_outer=_BELONGS_TO_TOPIC,
            ),
        )
    ),
    apis.UPDATE_METADATA: _AT_TOP,
    apis.CONTROLLED_SHUTDOWN: _AT_TOP,
    apis.OFFSET_COMMIT: _BY_TOPIC,
    apis.OFFSET_FETCH: Form(
        (
            Part(
                "topics",
                "topics",
                _same("name"),
                Part("partitions", "partition_indexes", _NUMBER, values={"committed_offset": -1, "metadata": ""}),
                Versions.of("0-1"),
            ),
            Part("groups", "groups", _same("group_id")),
        )
    ),
    apis.FIND_COORDINATOR: Form(
        (Part("coordinators", "coordinator_keys", {"key": ""}, values=_COORDINATOR),),
        values=_COORDINATOR,
        is_explained=True,
    ),
    apis.JOIN_GROUP: Form(values={"generation_id": -1, "protocol_name": None}),
    apis.HEARTBEAT: _AT_TOP,
    apis.LEAVE_GROUP: _AT_TOP,
    apis.SYNC_GROUP: _AT_TOP,
    apis.DESCRIBE_GROUPS: Form((Part("groups", "groups", {"group_id": ""}),)),
    apis.LIST_GROUPS: _AT_TOP,
    apis.SASL_HANDSHAKE: _AT_TOP,
    apis.API_VERSIONS: _AT_TOP,
    apis.CREATE_TOPICS: Form((Part("topics", "topics", _same("name")),)),
    apis.DELETE_TOPICS: Form(
        (Part("responses", "topics", _same("name", "topic_id")), Part("responses", "topic_names", {"name": ""}))
    ),
    apis.DELETE_RECORDS: Form(
        (
            Part(
                "topics",
                "topics",
                _same("name"),
                Part("partitions", "partitions", _same("partition_index"), values={"low_watermark": -1}),
            ),
        )
    ),
    apis.INIT_PRODUCER_ID: Form(values={"producer_id": -1, "producer_epoch": -1}),
    apis.OFFSET_FOR_LEADER_EPOCH: Form((_by_topic("topic", partition="partition"),)),
    apis.ADD_PARTITIONS_TO_TXN: Form(
        (
            Part(
                "results_by_topic_v3_and_below",
                "v3_and_below_topics",
                _same("name"),
                Part("results_by_partition", "partitions", _NUMBER),
            ),
        )
    ),
    apis.ADD_OFFSETS_TO_TXN: _AT_TOP,
    apis.END_TXN: _AT_TOP,
    apis.WRITE_TXN_MARKERS: Form(
        (
            Part(
                "markers",
                "markers",
                _same("producer_id"),
                Part("topics", "topics", _same("name"), Part("partitions", "partition_indexes", _NUMBER)),
            ),
        )
    ),
    apis.TXN_OFFSET_COMMIT: _BY_TOPIC,
    apis.DESCRIBE_ACLS: _AT_TOP,
    apis.CREATE_ACLS: Form((Part("results", "creations", {}),)),
    apis.DELETE_ACLS: Form((Part("filter_results", "filters", {}),)),
    apis.DESCRIBE_CONFIGS: Form(
        (Part("results", "resources", _same("resource_type", "resource_name")),), is_explained=True
    ),
    apis.ALTER_CONFIGS: _BY_RESOURCE,
    apis.ALTER_REPLICA_LOG_DIRS: Form(
        (Part("results", "dirs.topics", {"topic_name": "name"}, Part("partitions", "partitions", _NUMBER)),)
    ),
    apis.DESCRIBE_LOG_DIRS: _AT_TOP,
    apis.SASL_AUTHENTICATE: _AT_TOP,
    apis.CREATE_PARTITIONS: Form((Part("results", "topics", _same("name")),)),
    apis.CREATE_DELEGATION_TOKEN: Form(
        values={
            "principal_type": "User",
            "principal_name": "ANONYMOUS",
            "token_requester_principal_type": "User",
            "token_requester_principal_name": "ANONYMOUS",
            **dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), -1),
        }
    ),
    apis.RENEW_DELEGATION_TOKEN: _AT_TOP,
    apis.EXPIRE_DELEGATION_TOKEN: _AT_TOP,
    apis.DESCRIBE_DELEGATION_TOKEN: _AT_TOP,
    apis.DELETE_GROUPS: Form((Part("results", "groups_names", {"group_id": ""}),)),
    apis.ELECT_LEADERS: Form(
        (
            Part(
                "replica_election_results",
                "topic_partitions",
                _same("topic"),
                Part("partition_result", "partitions", {"partition_id": ""}),
            ),
        )
    ),
    apis.INCREMENTAL_ALTER_CONFIGS: _BY_RESOURCE,
    apis.ALTER_PARTITION_REASSIGNMENTS: Form(
        (Part("responses", "topics", _same("name"), Part("partitions", "partitions", _same("partition_index"))),)
    ),
    apis.LIST_PARTITION_REASSIGNMENTS: Form(
        (Part("topics", "topics", _same("name"), Part("partitions", "partition_indexes", _NUMBER)),)
    ),
    apis.OFFSET_DELETE: _AT_TOP,
    apis.DESCRIBE_CLIENT_QUOTAS: Form(values={"entries": None}),
    apis.ALTER_CLIENT_QUOTAS: Form(
        (Part("entries", "entries", _NOTHING, Part("entity", "entity", _same("entity_type", "entity_name"))),),
        is_explained=True,
    ),
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: Form((Part("results", "users", {"user": "name"}),)),
    apis.ALTER_USER_SCRAM_CREDENTIALS: Form(
        (Part("results", "deletions", {"user": "name"}), Part("results", "upsertions", {"user": "name"}))
    ),
    apis.ALTER_PARTITION: _AT_TOP,
    apis.UPDATE_FEATURES: _AT_TOP,
    apis.DESCRIBE_CLUSTER: _AT_TOP,
    apis.DESCRIBE_PRODUCERS: Form(
        (Part("topics", "topics", _same("name"), Part("partitions", "partition_indexes", _NUMBER)),)
    ),
    apis.DESCRIBE_TRANSACTIONS: Form((Part("transaction_states", "transactional_ids", {"transactional_id": ""}),)),
    apis.LIST_TRANSACTIONS: _AT_TOP,
    apis.ALLOCATE_PRODUCER_IDS: _AT_TOP,
}
"""By the key of the API: each that Kafka's table has."""


def refusal(key: int, version: int, request: Any, error: int, message: str | None = None) -> Any:
    """Return the response to a request that fails as a whole; None where it has none (Produce with acks=0).

    Args:
        key: the request's API.
        version: of the request, and of the response.
        request: the decoded message; None where it was not read, of ApiVersions.
        error: number of the error.
        message: what the client is to read of it; None: nothing, or what the error means in general; rule 2.
    """
    if key == apis.PRODUCE and request.acks == 0:
        return None
    form = FORMS[key]
    if message is None and form.is_explained:
        message = ERROR_TABLE[ErrorCode.of(error)].meaning
    response_class = message_class(key, response=True)
    response: Any = response_class()
    copied = {name: getattr(request, of) for name, of in form.names.items()}
    _fill(response, version, error, message, {**copied, **form.values})
    for part in form.parts:
        if (
            request is not None
            and version in part.versions
            and version in wires_of(response_class)[part.results].versions
        ):
            found = _results(part, response_class, request, version, error, message)
            setattr(response, part.results, [*(getattr(response, part.results) or ()), *found])
    return response


def _results(part: Part, owner: type, request: Any, version: int, error: int, message: str | None) -> Iterator[Any]:
    """Yield a result with the error for each item of the request, or of a part of it."""
    kind = wires_of(owner)[part.results].item
    assert isinstance(kind, type)
    for outer, item in _items(part, request):
        result: Any = kind()
        named = {name: getattr(item, of) if of else item for name, of in part.names.items()}
        named |= {name: getattr(outer, of) for name, of in part.of_outer.items()}
        _fill(result, version, error, message, {**named, **part.values})
        if part.within is not None:
            setattr(result, part.within.results, list(_results(part.within, kind, item, version, error, message)))
        yield result


def _items(part: Part, request: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the items that are named, each behind its owner."""
    outer, _, inner = part.items.partition(".")
    for one in getattr(request, outer) or ():
        if inner:
            yield from ((one, item) for item in getattr(one, inner) or ())
        else:
            yield request, one


def _fill(target: Any, version: int, error: int, message: str | None, values: Mapping[str, Any]) -> None:
    """Put the error and the values into the fields that a part of a response has in a version."""
    kind = target.__class__
    for name, value in {**dict.fromkeys(ERROR_FIELDS, error), "error_message": message, **values}.items():
        wire = wires_of(kind).get(name)
        if wire is not None and version in wire.versions and (value is not None or version in wire.nullable):
            setattr(target, name, value)
