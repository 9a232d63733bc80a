"""The same requests get the responses of Kafka 4.3.1 in the same bytes, and the same records are written."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.coordinator.share_groups.harness import S1, ShareGroupHarness, story

from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroup
from tidegauge.kafka.apis import SHARE_APIS, Protocol
from tidegauge.kafka.frames import decode, encode, joined, read_request_header
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes
from tidegauge_broker.server.wire.kafka.served import SERVED

STORY = story()
SHARE = Protocol(SHARE_APIS, "tidegauge.kafka.messages")
DELETE_GROUPS, HEARTBEAT, DESCRIBE, ALTER, DELETE = 42, 76, 77, 91, 92
RESPONSE_HEADER_BYTES = 5
RANDOM_TIMES = {"assignmentTimestamp"}


def respond(broker: ShareGroupHarness, step: Any) -> bytes:
    """The response of the API's handler to a request, as its client reads it."""
    frame = memoryview(bytes.fromhex(step["request"]))
    header = read_request_header(frame, SHARE)
    request, _ = decode(header.key, header.version, frame, header.body_at, protocol=SHARE)

    async def ask(wanted: Any) -> Any:
        return broker.ask(wanted)

    groups = SimpleNamespace(ask=ask, shares=SimpleNamespace(topic_id=lambda _: S1))
    context = SimpleNamespace(
        service=SimpleNamespace(groups=groups), header=header, caller=SimpleNamespace(host="127.0.0.1")
    )

    async def handled() -> Any:
        found: Any = SERVED[header.key].handle(request, cast("Any", context))
        return await found if hasattr(found, "__await__") else found

    response = asyncio.run(handled())
    if header.key == DESCRIBE:  # the order of a group's members follows Kafka's map
        for group in response.groups:
            group.members = sorted(group.members, key=lambda one: one.member_id)
    return joined(encode(header.key, header.version, response, SHARE))


@pytest.fixture(scope="module")
def played() -> tuple[ShareGroupHarness, list[tuple[str, Any, Any]]]:
    """The broker after all requests of membership, and of each its label, response and Kafka's response."""
    broker = ShareGroupHarness(share_times=ConsumerGroupTimes(), now_ms=0)
    responses = []
    for step in STORY["requests"]:
        if step["key"] == DELETE_GROUPS:
            result = broker.ask(DeleteGroup("sg1"))
            responses.append((step["label"], result.error, ErrorCode.NONE))
        elif step["key"] in {HEARTBEAT, DESCRIBE, ALTER, DELETE}:
            broker.after(max(step["at_ms"] - broker.now_ms, 0))
            expected = bytes.fromhex(step["response"])[RESPONSE_HEADER_BYTES:]
            responses.append((step["label"], respond(broker, step), expected))
    return broker, responses


def test_each_response_is_kafkas(played):
    _, responses = played
    assert [(label, response) for label, response, _ in responses] == [
        (label, expected) for label, _, expected in responses
    ]
    assert len(responses) == 17


def _in_json(value: Any) -> Any:
    """Return a key or value in the stored dump's form, without random times."""
    if isinstance(value, bytes):
        return topic_id_text(value)
    if isinstance(value, (list, tuple)):
        return [_in_json(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        names = {name: name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])) for name in value.__slots__}
        found = {json_name: _in_json(getattr(value, name)) for name, json_name in names.items()}
        return {name: one for name, one in found.items() if name not in RANDOM_TIMES}
    return int(value) if isinstance(value, int) else value


def test_the_records_of_the_group_are_kafkas(played):
    """From the first member's join to the deletion of the group."""
    broker, _ = played
    written = [
        (kind, _in_json(key), None if value is None else _in_json(value))
        for batch in broker.written()
        for kind, key, value in batch
    ]
    expected = []
    for key, value in STORY["records"]:
        data = None if value is None else {n: one for n, one in value["data"].items() if n not in RANDOM_TIMES}
        expected.append((int(key["type"]), key["data"], data))
    assert written == expected
    assert len(written) == 33
