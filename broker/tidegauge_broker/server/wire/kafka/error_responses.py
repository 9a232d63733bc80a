"""Responses of Kafka's protocol with one error throughout, as a request's ``getErrorResponse`` makes them. Pure.

Rules:
    1. Before its effect a request gets the error at the top of its response. Where its version has no such place, each
       item that the request names gets it: ``_MIRRORS`` says which list of the response names which of the request.
    2. The response to a request that only reads is the real one, with the error in it: only that names what there is.
    3. An error stands in each item of a real response that has a place for one, else at its top.

``partial_errors`` has those in which a part of the request alone fails.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidegauge.kafka import apis
from tidegauge.kafka.apis import APIS, message_class
from tidegauge.kafka.fields import WIRE, Wire

_READS = frozenset(
    {
        apis.API_VERSIONS,
        apis.DESCRIBE_ACLS,
        apis.DESCRIBE_CLIENT_QUOTAS,
        apis.DESCRIBE_CLUSTER,
        apis.DESCRIBE_CONFIGS,
        apis.DESCRIBE_DELEGATION_TOKEN,
        apis.DESCRIBE_GROUPS,
        apis.DESCRIBE_LOG_DIRS,
        apis.DESCRIBE_PRODUCERS,
        apis.DESCRIBE_TRANSACTIONS,
        apis.DESCRIBE_USER_SCRAM_CREDENTIALS,
        apis.FETCH,
        apis.FIND_COORDINATOR,
        apis.LIST_GROUPS,
        apis.LIST_OFFSETS,
        apis.LIST_PARTITION_REASSIGNMENTS,
        apis.LIST_TRANSACTIONS,
        apis.METADATA,
        apis.OFFSET_FETCH,
        apis.OFFSET_FOR_LEADER_EPOCH,
    }
)
_ERRORS = ("error_code", "partition_error_code")
_CLEARED = {"base_offset": -1, "high_watermark": -1, "records": b"", "offset": -1}
"""What a partition's result does not say beside an error.

Records are empty as in ``FetchResponse.partitionResponse``, and not null: librdkafka can't read that.
"""


class _Mirror(NamedTuple):
    """A list of a response that names what a list of the request names.

    Attributes:
        results: field of the response.
        items: field of the request; of a list inside another one ``outer.inner``.
        names: fields of a result, by which field of the item they are; ``""`` is the item itself.
        within: of the lists inside each of them.
    """

    results: str
    items: str
    names: Mapping[str, str]
    within: _Mirror | None = None


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_PARTITIONS = _Mirror("partitions", "partitions", _same("partition_index"))
_BY_TOPIC = (_Mirror("topics", "topics", _same("name"), _PARTITIONS),)
_BY_RESOURCE = (_Mirror("responses", "resources", _same("resource_type", "resource_name")),)
_MIRRORS: dict[int, tuple[_Mirror, ...]] = {
    apis.PRODUCE: (
        _Mirror(
            "responses", "topic_data", _same("name"), _Mirror("partition_responses", "partition_data", _same("index"))
        ),
    ),
    apis.OFFSET_COMMIT: _BY_TOPIC,
    apis.CREATE_TOPICS: (_Mirror("topics", "topics", _same("name")),),
    apis.DELETE_TOPICS: (
        _Mirror("responses", "topics", _same("name", "topic_id")),
        _Mirror("responses", "topic_names", {"name": ""}),
    ),
    apis.DELETE_RECORDS: _BY_TOPIC,
    apis.ADD_PARTITIONS_TO_TXN: (
        _Mirror(
            "results_by_topic_v3_and_below",
            "v3_and_below_topics",
            _same("name"),
            _Mirror("results_by_partition", "partitions", {"partition_index": ""}),
        ),
    ),
    apis.WRITE_TXN_MARKERS: (
        _Mirror(
            "markers",
            "markers",
            _same("producer_id"),
            _Mirror(
                "topics", "topics", _same("name"), _Mirror("partitions", "partition_indexes", {"partition_index": ""})
            ),
        ),
    ),
    apis.TXN_OFFSET_COMMIT: _BY_TOPIC,
    apis.CREATE_ACLS: (_Mirror("results", "creations", {}),),
    apis.DELETE_ACLS: (_Mirror("filter_results", "filters", {}),),
    apis.ALTER_CONFIGS: _BY_RESOURCE,
    apis.ALTER_REPLICA_LOG_DIRS: (
        _Mirror(
            "results",
            "dirs.topics",
            {"topic_name": "name"},
            _Mirror("partitions", "partitions", {"partition_index": ""}),
        ),
    ),
    apis.CREATE_PARTITIONS: (_Mirror("results", "topics", _same("name")),),
    apis.DELETE_GROUPS: (_Mirror("results", "groups_names", {"group_id": ""}),),
    apis.ELECT_LEADERS: (
        _Mirror(
            "replica_election_results",
            "topic_partitions",
            _same("topic"),
            _Mirror("partition_result", "partitions", {"partition_id": ""}),
        ),
    ),
    apis.INCREMENTAL_ALTER_CONFIGS: _BY_RESOURCE,
    apis.ALTER_CLIENT_QUOTAS: (_Mirror("entries", "entries", _same("entity")),),
    apis.ALTER_USER_SCRAM_CREDENTIALS: (
        _Mirror("results", "deletions", {"user": "name"}),
        _Mirror("results", "upsertions", {"user": "name"}),
    ),
}


def only_reads(key: int) -> bool:
    """Return whether requests of an API change nothing; rule 2."""
    return key in _READS


def problem(name: str, *, after_effect: bool) -> str:
    """Return why the responses of an API can't carry an injected error; empty if they can."""
    key = next(api.key for api in APIS.values() if api.name == name)
    response = message_class(key, response=True)
    if after_effect or only_reads(key) or key in _MIRRORS or _wire(response, "error_code"):
        return ""
    return f"{name} can respond with an error only after its effect, or fail with a gRPC status before it"


def refusal(key: int, version: int, request: Any, error: int) -> Any:
    """Return the response that refuses a request before its effect; None where it has no place for the error. Rule 1.

    Args:
        key: the request's API.
        version: of the request.
        request: the decoded message.
        error: number of the error.
    """
    response_class = message_class(key, response=True)
    response: Any = response_class()
    at_top = _wire(response_class, "error_code")
    if at_top is not None and version in at_top.versions:
        response.error_code = error
        return response
    if key not in _MIRRORS:
        return None
    for mirror in _MIRRORS[key]:
        found = _mirrored(mirror, response_class, request, error)
        setattr(response, mirror.results, [*getattr(response, mirror.results), *found])
    return response


def _mirrored(mirror: _Mirror, owner: type, request: Any, error: int) -> Iterator[Any]:
    """Yield a result with the error for each item of the request, or of a part of it."""
    wire = _wire(owner, mirror.results)
    assert wire is not None
    assert isinstance(wire.item, type)
    outer, _, inner = mirror.items.partition(".")
    found = getattr(request, outer) or ()
    for item in [one for each in found for one in getattr(each, inner)] if inner else found:
        result = wire.item(**{name: getattr(item, of, item) if of else item for name, of in mirror.names.items()})
        if mirror.within is not None:
            setattr(result, mirror.within.results, list(_mirrored(mirror.within, wire.item, item, error)))
        set_error(result, error)
        yield result


def put(response: Any, error: int, *, top_level: bool = False) -> None:
    """Put an error into a real response; rule 3, or at its top alone where that has a place."""
    if top_level and hasattr(response, "error_code"):
        response.error_code = error
        return
    for item in list(_items(response)) or [response]:
        set_error(item, error)


def has_error(item: Any) -> bool:
    """Return whether a part of a response has a place for an error."""
    return any(hasattr(item, name) for name in _ERRORS)


def set_error(item: Any, error: int) -> None:
    """Put an error into a part of a response that has a place for it, in place of what it says."""
    if not has_error(item):
        return
    for name, value in {**dict.fromkeys(_ERRORS, error), **_CLEARED}.items():
        if hasattr(item, name):
            setattr(item, name, value)


def _items(message: Any) -> Iterator[Any]:
    """Yield the outermost parts of a message that have an error code of their own."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, (list, tuple)):
            for part in value:
                if has_error(part):
                    yield part
                elif dataclasses.is_dataclass(part):
                    yield from _items(part)


@functools.cache
def _wire(owner: type, name: str) -> Wire | None:
    found = next((field for field in dataclasses.fields(owner) if field.name == name), None)
    return None if found is None else found.metadata[WIRE]
