"""The same requests get the responses of Kafka 4.3.1 in the same bytes, and the same records are written."""

from typing import Any

import pytest
from tests.unit.coordinator.share_groups.harness import S1, ShareGroupHarness, story

from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroup
from tidegauge.kafka.apis import SHARE_APIS, Protocol
from tidegauge.kafka.frames import decode, encode, joined, read_request_header
from tidegauge.kafka.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.share_groups import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    DescribeShareGroupResult,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
)
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes

STORY = story()
SHARE = Protocol(SHARE_APIS, "tidegauge.kafka.messages")
DELETE_GROUPS, HEARTBEAT, DESCRIBE, ALTER, DELETE = 42, 76, 77, 91, 92
RESPONSE_HEADER_BYTES = 5
RANDOM_TIMES = {"assignmentTimestamp"}


def _heartbeat_response(result: ShareGroupHeartbeatResult) -> share_group_heartbeat.ShareGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        topics = [share_group_heartbeat.TopicPartitions(*one) for one in result.assignment]
        assignment = share_group_heartbeat.Assignment(topics)
    return share_group_heartbeat.ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _described_group(result: DescribeShareGroupResult) -> share_group_describe.DescribedGroup:
    members = [
        share_group_describe.Member(
            one.member_id,
            one.rack_id,
            one.member_epoch,
            one.client_id,
            one.client_host,
            one.topic_names,
            share_group_describe.Assignment(
                [
                    share_group_describe.TopicPartitions(topic.topic_id, topic.topic, topic.partitions)
                    for topic in one.assignment
                ]
            ),
        )
        for one in sorted(result.members, key=lambda one: one.member_id)
    ]
    return share_group_describe.DescribedGroup(
        result.error,
        result.message,
        result.group_id,
        result.state,
        result.group_epoch,
        result.assignment_epoch,
        result.assignor,
        members,
    )


def _alter(broker: ShareGroupHarness, request: Any) -> alter_share_group_offsets.AlterShareGroupOffsetsResponse:
    offsets = {
        topic.topic_name: {one.partition_index: one.start_offset for one in topic.partitions}
        for topic in request.topics
    }
    result = broker.ask(AlterShareOffsets(request.group_id, offsets))
    topics = [
        alter_share_group_offsets.AlterShareGroupOffsetsResponseTopic(
            name,
            S1,
            [
                alter_share_group_offsets.AlterShareGroupOffsetsResponsePartition(partition, one.error, one.message)
                for partition, one in partitions.items()
            ],
        )
        for name, partitions in result.partitions.items()
    ]
    return alter_share_group_offsets.AlterShareGroupOffsetsResponse(0, result.error, result.message, topics)


def _delete(broker: ShareGroupHarness, request: Any) -> delete_share_group_offsets.DeleteShareGroupOffsetsResponse:
    result = broker.ask(DeleteShareOffsets(request.group_id, [topic.topic_name for topic in request.topics]))
    topics = [
        delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic(name, S1, one.error, one.message)
        for name, one in result.topics.items()
    ]
    return delete_share_group_offsets.DeleteShareGroupOffsetsResponse(0, result.error, result.message, topics)


def respond(broker: ShareGroupHarness, step: Any) -> bytes:
    frame = memoryview(bytes.fromhex(step["request"]))
    header = read_request_header(frame, SHARE)
    request, _ = decode(header.key, header.version, frame, header.body_at, protocol=SHARE)
    response: Any
    if header.key == HEARTBEAT:
        names = request.subscribed_topic_names
        response = _heartbeat_response(
            broker.ask(
                ShareGroupHeartbeat(
                    request.group_id,
                    request.member_id,
                    request.member_epoch,
                    request.rack_id,
                    None if names is None else tuple(names),
                    header.client_id,
                    "/127.0.0.1",
                )
            )
        )
    elif header.key == ALTER:
        response = _alter(broker, request)
    elif header.key == DELETE:
        response = _delete(broker, request)
    else:
        groups = [_described_group(broker.ask(DescribeShareGroup(group))) for group in request.group_ids]
        response = share_group_describe.ShareGroupDescribeResponse(groups=groups)
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
    """Return a record's key or value in the form of the stored dump, without random times."""
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
