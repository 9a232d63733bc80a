"""The response of every API to a request that fails as a whole, as its ``getErrorResponse`` makes it. Pure.

Rules (``AbstractRequest.getErrorResponse`` of each request class of Apache Kafka 3.9.1):
    1. The error is at the top of the response if its version has a place there, and in a result for each topic,
       partition, group or resource that the request names. The ``Form`` of an API says which list of the response names
       which list of the request, by version; some requests name nothing beside an error at the top (Fetch from version
       13 on).
    2. An error of no further explanation has no message, except for the APIs whose classes always give one
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
from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge.kafka.fields import Versions, wires_of

_EACH = Versions.of("0+")
_NOTHING: Mapping[str, Any] = {}
ERROR_FIELDS = ("error_code", "partition_error_code")


class Part(NamedTuple):
    """A list of a response whose entries name the entries of a list of the request.

    Attributes:
        results: field of the response.
        items: field of the request; of a list inside another one ``outer.inner``.
        names: fields of a result, by which field of the item they are; ``""`` is the item itself.
        within: of the lists inside each of them.
        versions: in which the results are named.
        of_outer: fields of a result that come from the item's owner, if items is ``outer.inner``.
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


def same(*names: str) -> dict[str, str]:
    """Return the names of a result that equal its item's names."""
    return {name: name for name in names}


def by_topic(*names: str, partitions: str = "partitions", partition: str = "partition_index") -> Part:
    """Return the part of a response with the request's topics and partitions.

    ``names``: the fields of topics.
    """
    return Part("topics", "topics", same(*(names or ("name",))), Part(partitions, partitions, same(partition)))


AT_TOP = Form()
BY_TOPIC = Form((by_topic(),))
BY_RESOURCE = Form((Part("responses", "resources", same("resource_type", "resource_name")),))
NUMBER = {"partition_index": ""}
"""The names of a result whose item is the number of a partition."""


def refusal(
    form: Form,
    key: int,
    version: int,
    request: Any,
    error: int,
    message: str | None = None,
    protocol: Protocol = BROKER_PROTOCOL,
) -> Any:
    """Return the response to a failed request; None for acks=0.

    Args:
        form: of the API's response.
        key: the request's API.
        version: of the request, and of the response.
        request: the decoded message; None if it was not read, for ApiVersions.
        error: number of the error.
        message: the text for the client; None: none, or the error's general meaning (rule 2).
        protocol: the protocol to which the response's message belongs.
    """
    if key == apis.PRODUCE and request.acks == 0:
        return None
    if message is None and form.is_explained:
        message = ERROR_TABLE[ErrorCode.of(error)].meaning
    response_class = protocol.message_class(key, response=True)
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
