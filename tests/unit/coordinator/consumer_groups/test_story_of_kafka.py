"""The same requests get the responses of Kafka 4.3.1 in the same bytes, and the same records are written."""

from typing import Any

import pytest
from tests.unit.coordinator.consumer_groups.consumer_harness import WITH_INTERVAL, ConsumerHarness
from tests.unit.coordinator.consumer_groups.golden import story

from tidegauge import groups
from tidegauge.consumer_groups import DescribeConsumerGroup
from tidegauge.kafka import apis
from tidegauge.kafka.coordinator.consumer_group_current_member_assignment import TopicPartitions
from tidegauge.kafka.frames import decode, encode, joined, read_request_header
from tidegauge.kafka.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.handlers import consumer_group_describe, consumer_group_heartbeat

STORY = story()
RANDOM_ID = "v0 empty member id: server generates"
RANDOM_TIMES = {"assignmentTimestamp", "timestamp", "version"}
RESPONSE_HEADER_BYTES = 5


def request_of(step: Any) -> tuple[Any, str]:
    frame = memoryview(bytes.fromhex(step["request"]))
    header = read_request_header(frame)
    assert (header.key, header.version) == (step["key"], step["version"])
    request, _ = decode(header.key, header.version, frame, header.body_at)
    return request, header.client_id


def _heartbeat(broker: ConsumerHarness, step: Any) -> bytes:
    request, client_id = request_of(step)
    result = broker.ask(consumer_group_heartbeat.heartbeat_of(request, step["version"], client_id, "/127.0.0.1"))
    if step["label"] == RANDOM_ID:
        return result.error, result.member_epoch
    return joined(encode(step["key"], step["version"], consumer_group_heartbeat.response_of(result)))


def _describe(broker: ConsumerHarness, step: Any) -> bytes:
    request, _ = request_of(step)
    described = [
        consumer_group_describe.response_of(broker.ask(DescribeConsumerGroup(group)), with_operations=False)
        for group in request.group_ids
    ]
    for group in described:
        group.members = sorted(group.members, key=lambda one: one.member_id)
    return joined(encode(step["key"], step["version"], ConsumerGroupDescribeResponse(groups=described)))


def _commit(broker: ConsumerHarness, step: Any) -> list[int]:
    request, _ = request_of(step)
    offsets = tuple(
        groups.OffsetToCommit(TopicPartition(topic.name, one.partition_index), one.committed_offset)
        for topic in request.topics
        for one in topic.partitions
    )
    result = broker.ask(
        groups.OffsetCommit(
            request.group_id,
            offsets,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            knows_member_epochs=step["version"] >= 9,
        )
    )
    return [int(error) for error in result.partitions.values()]


def _fetch(broker: ConsumerHarness, step: Any) -> list[tuple[int, list[int]]]:
    request, _ = request_of(step)
    found = []
    for group in request.groups:
        partitions = tuple(
            TopicPartition(topic.name, index) for topic in group.topics or () for index in topic.partition_indexes
        )
        result = broker.ask(
            groups.OffsetFetch(group.group_id, partitions, request.require_stable, group.member_id, group.member_epoch)
        )
        found.append((int(result.error), [one.offset for one in result.offsets.values()]))
    return found


def expected_of(step: Any) -> Any:
    body = bytes.fromhex(step["response"])[RESPONSE_HEADER_BYTES:]
    response, _ = decode(step["key"], step["version"], memoryview(body), 0, response=True)
    if step["label"] == RANDOM_ID:
        return response.error_code, response.member_epoch
    if step["key"] == apis.OFFSET_COMMIT:
        return [one.error_code for topic in response.topics for one in topic.partitions]
    if step["key"] == apis.OFFSET_FETCH:
        return [
            (group.error_code, [one.committed_offset for topic in group.topics for one in topic.partitions])
            for group in response.groups
        ]
    if step["key"] == apis.CONSUMER_GROUP_DESCRIBE:
        for group in response.groups:
            group.members = sorted(group.members, key=lambda one: one.member_id)
        return joined(encode(step["key"], step["version"], response))
    return body


PLAY = {
    apis.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    apis.CONSUMER_GROUP_DESCRIBE: _describe,
    apis.OFFSET_COMMIT: _commit,
    apis.OFFSET_FETCH: _fetch,
}


@pytest.fixture(scope="module")
def played() -> tuple[ConsumerHarness, list[tuple[str, Any, Any]]]:
    """The broker after all requests, and of each its label, response and Kafka's response."""
    # Kafka's first look for expired offsets, and so for groups that have nothing left, came at about this time.
    broker = ConsumerHarness(consumer_times=WITH_INTERVAL, now_ms=0, offsets_retention_check_interval_ms=30_000)
    responses = []
    for step in STORY["requests"]:
        broker.after(max(step["at_ms"] - broker.now_ms, 0))
        responses.append((step["label"], PLAY[step["key"]](broker, step), expected_of(step)))
    return broker, responses


def test_each_response_is_kafkas(played):
    _, responses = played
    assert [(label, response) for label, response, _ in responses] == [
        (label, expected) for label, _, expected in responses
    ]
    assert len(responses) > 90


def _in_json(value: Any) -> Any:
    """Return a key or value in the stored dump's form, without random parts."""
    if isinstance(value, bytes):
        return topic_id_text(value)
    if isinstance(value, (list, tuple)):
        return [_in_json(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        names = {name: name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])) for name in value.__slots__}
        found = {json_name: _in_json(getattr(value, name)) for name, json_name in names.items()}
        if isinstance(value, TopicPartitions) and found["assignmentEpochs"] is None:
            del found["assignmentEpochs"]
        return {name: one for name, one in found.items() if name not in RANDOM_TIMES}
    return int(value) if isinstance(value, int) else value


def _without_times(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {name: one for name, one in value.items() if name not in RANDOM_TIMES}
    if "epoch" in found:
        found.setdefault("metadataHash", 0)
    return found


@pytest.mark.parametrize("group", ["h1", "h2", "h3", "h4", "h7"])
def test_the_records_of_a_group_are_kafkas(played, group):
    broker, _ = played
    written = [
        [(kind, _in_json(key), None if value is None else _in_json(value)) for kind, key, value in batch]
        for batch in broker.written()
        if batch[0][1].group_id == group
    ]
    expected = [
        [(kind, key, _without_times(value)) for kind, key, value in batch if key.get("groupId") == group]
        for batch in STORY["records"]
        if batch[0][1].get("groupId") == group
    ]
    assert written == expected[: len(written)]
    assert len(written) >= min(len(expected), 4) - 1
