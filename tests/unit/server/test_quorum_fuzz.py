"""Random requests of each API of a quorum, in each version, at a leader, a follower and an observer (Kafka's wire)."""

from __future__ import annotations

import random

import pytest
from tests.unit.kafka.random_messages import random_struct
from tests.unit.raft.driven_node import Driven, driven, static_voters, voters_in_log

from tidegauge.errors import ErrorCode
from tidegauge.kafka.frames import codec_of, joined
from tidegauge.kafka.kraft.apis import DESCRIBE_QUORUM, KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import describe_quorum
from tidegauge_broker.server.quorum.requests_in import (
    NOT_HOSTED,
    READERS,
    TOPIC,
    TOPIC_ID,
    Refused,
    read_request,
    write_response,
)
from tidegauge_controller.raft import effects, events

SAMPLES = 40


def node_of(kind: str) -> Driven:
    """A node that leads, has not voted yet, or is no voter."""
    if kind == "leader":
        node = driven(0, voters_in_log(0, 1, 2), bootstrap=True)
        node.elect(to=1)
        return node
    return driven(0, static_voters(0, 1, 2)) if kind == "voter" else driven(7, static_voters(0, 1, 2))


def aim(message: object, rng: random.Random) -> None:
    """Let half of the messages be about the metadata partition, so that they reach the node."""
    topics = getattr(message, "topics", None)
    if not topics or rng.random() < 0.5:
        return
    del topics[1:]
    for name in ("topic_name", "name", "topic"):
        if hasattr(topics[0], name):
            setattr(topics[0], name, TOPIC)
    if hasattr(topics[0], "topic_id"):
        topics[0].topic_id = TOPIC_ID
    del topics[0].partitions[1:]
    for partition in topics[0].partitions:
        for name in ("partition_index", "partition"):
            if hasattr(partition, name):
                setattr(partition, name, 0)


@pytest.mark.parametrize("kind", ["leader", "voter", "observer"])
@pytest.mark.parametrize("key", sorted(READERS), ids=lambda key: KRAFT_APIS[key].name)
def test_no_request_of_a_stranger_stops_a_node_and_each_response_can_be_written(key: int, kind: str):
    """A request that makes no sense is refused; the node goes on, and its responses fit every version."""
    rng = random.Random(f"{key} {kind}")
    api = KRAFT_APIS[key]
    node, responses = node_of(kind), 0
    for version in [version for version in range(api.first, api.last + 1) for _ in range(SAMPLES)]:
        codec = codec_of(key, version, KRAFT_PROTOCOL)
        message = random_struct(codec.request_class, version, rng)
        aim(message, rng)
        message, _ = codec.decode_request(memoryview(joined(codec.encode(message))))
        try:
            asked = read_request(key, version, message)
        except Refused as refused:
            codec.encode(refused.response)
            responses += 1
            continue
        token = object()
        for effect in node.give(events.RequestReceived(token, asked)):
            if isinstance(effect, effects.Respond) and effect.token is token:
                codec.encode(write_response(key, effect.response))
                responses += 1
        node.wait(1)
    assert responses > SAMPLES / 2


@pytest.mark.parametrize(("version", "message"), [(0, None), (2, NOT_HOSTED)])
def test_another_partition_than_the_metadata_log_is_described_as_unknown(version: int, message: str | None):
    """DescribeQuorumRequest.getErrorResponse: the error alone; no leader, epoch or high watermark is claimed."""
    asked = describe_quorum.DescribeQuorumRequest(
        [describe_quorum.TopicData("orders", [describe_quorum.PartitionData(3)])]
    )
    with pytest.raises(Refused) as refused:
        read_request(DESCRIBE_QUORUM, version, asked)
    [topic] = refused.value.response.topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.partitions == [describe_quorum.ResponsePartitionData(3, unknown, message)]
