"""Every API and version responds to a failure in the form of Kafka's own ``getErrorResponse``, and names what failed.

kafka_error_responses.txt.gz has the responses that the request classes of Apache Kafka 3.9.1 make to the samples of
``sample_requests``; ``bench/differential_errors.py`` asks them again.
"""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_requests import each_request, sample

from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.apis import APIS
from tidegauge.kafka.frames import decode, encode, joined
from tidegauge.kafka.messages.produce import ProduceRequest
from tidegauge_broker.server.wire.kafka.served import HANDLERS, SERVED

UNKNOWN = int(ErrorCode.UNKNOWN_SERVER_ERROR)
KAFKAS_MESSAGE = "The server experienced an unexpected error when processing the request."
KAFKAS = gzip.decompress((Path(__file__).parent / "kafka_error_responses.txt.gz").read_bytes()).decode().splitlines()
SAMPLES = list(each_request())
OF_KAFKA_39 = [one for one in SAMPLES if one[0] not in apis.EXTENSIONS]
"""Those whose classes the recorded release has: the extensions' are of a later one, and their golden frames are in
tests/unit/coordinator/consumer_groups."""
NOT_NAMED = {
    *((apis.FETCH, version) for version in range(13, 18)),
    *((key, version) for key in (apis.SHARE_FETCH, apis.SHARE_ACKNOWLEDGE) for version in (1, 2)),
    *((apis.OFFSET_FETCH, version) for version in range(2, 8)),
    *((apis.ADD_PARTITIONS_TO_TXN, version) for version in (4, 5)),
    *((key, version) for key in (apis.OFFSET_DELETE, apis.ALTER_PARTITION) for version in range(4)),
    *((key, version) for key in (apis.UPDATE_METADATA, apis.DESCRIBE_LOG_DIRS) for version in range(9)),
    *((apis.CONSUMER_GROUP_HEARTBEAT, version) for version in (0, 1)),
    (apis.ALTER_SHARE_GROUP_OFFSETS, 0),
    (apis.DELETE_SHARE_GROUP_OFFSETS, 0),
}
"""Requests whose topics Kafka's response to a failure does not name: the error is at its top, or nowhere."""
NOWHERE = {
    *((apis.DESCRIBE_LOG_DIRS, version, kind) for version in range(3) for kind in ("full", "null")),
    *((apis.METADATA, version, "null") for version in range(1, 13)),
    (apis.ELECT_LEADERS, 0, "null"),
}
"""Responses that have no place for an error, in Kafka too."""
NAMES = (
    "name",
    "topic",
    "topic_name",
    "topic_names",
    "group_id",
    "topic_id",
    "resource_name",
    "transactional_id",
    "key",
)
TOPICS = ("topics", "topic_data", "v3_and_below_topics", "topic_names", "topic_partitions")
PARTITIONS = ("partitions", "partition_data", "partition_indexes")
NUMBERS = ("partition", "partition_index", "index", "partition_id")


def received(key: int, version: int, response: Any) -> Any:
    """The response as its client reads it."""
    frame = memoryview(joined(encode(key, version, response)))
    message, end = decode(key, version, frame, 0, response=True)
    assert end == len(frame)
    return message


def comparable(value: Any) -> Any:
    """Turn a message into tuples: lists sorted, since Kafka's come out of hash maps; empty records like null ones."""
    if dataclasses.is_dataclass(value):
        return tuple((one.name, comparable(getattr(value, one.name))) for one in dataclasses.fields(value))
    if isinstance(value, (list, tuple)):
        return tuple(sorted(map(comparable, value), key=repr))
    if isinstance(value, memoryview):
        return bytes(value) or None
    return ERROR_TABLE[ErrorCode.UNKNOWN_SERVER_ERROR].meaning if value == KAFKAS_MESSAGE else value


def test_each_api_that_is_served_has_a_form() -> None:
    assert set(SERVED) == set(APIS)
    assert set(HANDLERS) <= set(SERVED)
    assert len(KAFKAS) == len(OF_KAFKA_39)


@pytest.mark.parametrize(("number", "key", "version", "kind"), [(at, *one) for at, one in enumerate(OF_KAFKA_39)])
def test_a_failure_has_the_response_of_kafkas_own_classes(number: int, key: int, version: int, kind: str) -> None:
    ours = received(key, version, SERVED[key].refusal(version, sample(key, version, kind), UNKNOWN))
    *name, body = KAFKAS[number].split(" ", 3)
    assert name == [str(key), str(version), kind]
    if key == apis.DESCRIBE_USER_SCRAM_CREDENTIALS:  # Kafka's has no names, and fails itself if there are no users
        assert [one.user for one in ours.results] == (["name-1", "name-2"] if kind == "full" else [])
        return
    theirs, end = decode(key, version, memoryview(bytes.fromhex(body)), 0, response=True)
    assert end == len(body) // 2
    assert comparable(ours) == comparable(theirs)


def values(message: Any, names: tuple[str, ...]) -> set[Any]:
    """All values of fields of these names in a message, but for empty ones."""
    found: set[Any] = set()
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if dataclasses.is_dataclass(one):
                found |= values(one, names)
            elif field.name in names and one:
                found.add(one)
    return found


def topics_of(request: Any) -> Iterator[tuple[str | bytes, set[int]]]:
    """Yield the topics that a request names, by id if they have no name, and their partitions."""
    owners = [request, *(getattr(request, "markers", None) or ()), *(getattr(request, "dirs", None) or ())]
    for topic in [one for owner in owners for field in TOPICS for one in getattr(owner, field, None) or ()]:
        if isinstance(topic, str):
            yield topic, set()
            continue
        name = next(found for field in NAMES if (found := getattr(topic, field, None)))
        items = [one for field in PARTITIONS for one in getattr(topic, field, None) or ()]
        yield name, {one if isinstance(one, int) else min(values(one, NUMBERS)) for one in items}


@pytest.mark.parametrize(("key", "version", "kind"), SAMPLES)
def test_a_failure_says_so_and_names_each_topic_and_partition_of_the_request(key: int, version: int, kind: str) -> None:
    request = sample(key, version, kind)
    response = received(key, version, SERVED[key].refusal(version, request, UNKNOWN))
    errors = values(response, ("error_code", "partition_error_code"))
    assert errors == (set() if (key, version, kind) in NOWHERE else {UNKNOWN})
    if (key, version) in NOT_NAMED:
        return
    topics = list(topics_of(request))
    assert {name for name, _ in topics} <= values(response, NAMES)
    if key not in {apis.CREATE_TOPICS, apis.CREATE_PARTITIONS}:  # they have a result for each topic
        assert {number for _, numbers in topics for number in numbers} <= values(response, NUMBERS)


def test_a_produce_with_acks_0_has_no_response() -> None:
    """ProduceRequest.getErrorResponse: null, so that the connection is closed."""
    assert SERVED[apis.PRODUCE].refusal(9, ProduceRequest(acks=0), UNKNOWN) is None
