"""Every message of every version: encoded values decode to the same values, and hostile bytes raise one error."""

import random
import struct
import tracemalloc
from dataclasses import replace

import pytest
from tests.unit.kafka.random_messages import message_versions, random_message

from tidegauge.kafka import compiler
from tidegauge.kafka.apis import APIS, CREATE_TOPICS, FETCH, METADATA, PRODUCE, STOP_REPLICA, UPDATE_METADATA
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import codec_of, decode, encode, joined
from tidegauge.kafka.messages.create_topics import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from tidegauge.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.kafka.messages.stop_replica import StopReplicaRequest, StopReplicaTopicState
from tidegauge.kafka.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

MESSAGES = list(message_versions())
BY_KEY = [[row for row in MESSAGES if row[0] == key] for key in APIS]


@pytest.mark.parametrize("rows", BY_KEY, ids=lambda rows: APIS[rows[0][0]].name)
def test_a_message_decodes_to_what_was_encoded(rows: list[tuple[int, int, bool]]):
    for key, version, response in rows:
        for seed in range(4):
            message = random_message(key, version, seed, response=response)
            body = joined(encode(key, version, message))
            decoded, end = decode(key, version, memoryview(body), response=response)
            assert end == len(body)
            assert comparable(decoded) == comparable(message)


def comparable(message: object) -> str:
    """Sequences may come back as another kind of sequence, record batches as views, null records as none."""
    slots = getattr(message, "__slots__", None)
    if slots is not None and type(message).__module__.startswith("tidegauge."):
        return f"{type(message).__name__}({[comparable(getattr(message, name)) for name in slots]})"
    if isinstance(message, (list, tuple)):
        return str([comparable(item) for item in message])
    return repr(bytes(message) if isinstance(message, memoryview) else message)


@pytest.mark.parametrize("rows", BY_KEY, ids=lambda rows: APIS[rows[0][0]].name)
def test_bytes_that_are_no_message_raise_malformed_message_only(rows: list[tuple[int, int, bool]]):
    for key, version, response in rows:
        rng = random.Random(f"{key} {version}")
        body = joined(encode(key, version, random_message(key, version, 1, response=response)))
        attempts = [body[:length] for length in range(0, len(body), max(1, len(body) // 40))]
        for _ in range(40):
            damaged = bytearray(body or b"\0")
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            attempts.append(bytes(damaged))
        attempts.append(rng.randbytes(64))
        for attempt in attempts:
            try:
                _, end = decode(key, version, memoryview(attempt), response=response)
            except MalformedMessage:
                continue
            assert end <= len(attempt)


@pytest.mark.parametrize("version", [0, 12])
def test_an_array_that_the_frame_cannot_hold_is_rejected_before_anything_is_allocated(version: int):
    count = struct.pack(">i", 2**31 - 1) if version == 0 else bytes.fromhex("ffffffff07")
    frame = memoryview(count + bytes(1000))
    decode_quietly(version, frame)
    tracemalloc.start()
    try:
        decode_quietly(version, frame)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def decode_quietly(version: int, frame: memoryview) -> None:
    with pytest.raises(MalformedMessage, match="2147483"):
        decode(METADATA, version, frame)


def test_the_items_of_one_message_are_limited_even_where_they_take_two_bytes_each(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiler, "MAX_ITEMS", 10)
    eleven = struct.pack(">i", 11) + bytes(22)
    with pytest.raises(MalformedMessage, match="11 items"):
        decode(METADATA, 0, memoryview(eleven))
    ten = struct.pack(">i", 10) + bytes(20)
    message, _ = decode(METADATA, 0, memoryview(ten))
    assert len(message.topics) == 10


@pytest.mark.parametrize("version", [0, 8])
def test_a_control_request_may_name_more_partitions_than_the_limit_of_others_allows(version: int):
    """Kafka's controller never splits one: a broker that rejects it gets it again for ever (RequestSendThread)."""
    one = UpdateMetadataPartitionState(isr=[0, 1, 2], replicas=[0, 1, 2])
    states = [replace(one, partition_index=at) for at in range(compiler.MAX_ITEMS // 7 + 1)]
    named = {"ungrouped_partition_states": states} if version == 0 else {"topic_states": [topic_of(states)]}
    body = memoryview(joined(encode(UPDATE_METADATA, version, UpdateMetadataRequest(**named))))
    found, end = decode(UPDATE_METADATA, version, body)
    assert end == len(body)
    assert comparable(found) == comparable(UpdateMetadataRequest(**named))


def topic_of(states: list[UpdateMetadataPartitionState]) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState("t", partition_states=states)


def test_the_items_of_a_control_request_are_limited_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiler, "MAX_LARGE_ITEMS", 10)
    body = joined(encode(STOP_REPLICA, 4, StopReplicaRequest(topic_states=[StopReplicaTopicState("t")] * 11)))
    with pytest.raises(MalformedMessage, match="11 items"):
        decode(STOP_REPLICA, 4, memoryview(body))


def test_a_response_may_have_more_items_than_a_request():
    """One to CreateTopics of 3,100 topics has 33 settings of each: Kafka's clients limit it by its frame alone."""
    configs = [CreatableTopicConfigs("retention.ms", "5", False, 5)] * 33
    topics = [CreatableTopicResult(f"t{one}", configs=configs) for one in range(3_100)]
    body = memoryview(joined(encode(CREATE_TOPICS, 7, CreateTopicsResponse(0, topics))))
    found, end = decode(CREATE_TOPICS, 7, body, response=True)
    assert (end, len(found.topics)) == (len(body), len(topics))
    steps = codec_of(CREATE_TOPICS, 7).decode_in_slices(body, 0, 500, response=True)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(steps)
    assert ended.value.value == found


def test_a_tagged_field_may_not_read_beyond_its_size():
    """Otherwise each of many small tags could have the rest of the frame parsed again."""
    empty = FetchResponse()
    body = bytearray(joined(encode(FETCH, 16, empty)))
    assert body[-1] == 0  # no tagged field
    body[-1] = 1
    body += b"\0\0" + b"\x02" + bytes(4) + b"\x01" + bytes(6)  # node endpoints with size 0, and one of them behind it
    with pytest.raises(MalformedMessage, match="tagged"):
        decode(FETCH, 16, memoryview(bytes(body)), response=True)


def test_unknown_tagged_fields_are_skipped():
    body = bytearray(joined(encode(FETCH, 16, FetchResponse(session_id=7))))
    body[-1] = 1
    body += b"\x63\x03abc"
    message, end = decode(FETCH, 16, memoryview(bytes(body)), response=True)
    assert (message.session_id, end) == (7, len(body))


def test_a_varint_of_more_than_five_bytes_is_malformed():
    with pytest.raises(MalformedMessage, match="five bytes"):
        decode(METADATA, 12, memoryview(b"\x80" * 9 + b"\x01"))


def test_null_is_rejected_where_a_version_has_none():
    with pytest.raises(MalformedMessage, match="is null"):
        decode(METADATA, 0, memoryview(struct.pack(">i", -1)))
    message, _ = decode(METADATA, 1, memoryview(struct.pack(">i", -1)))
    assert message.topics is None


def test_record_batches_are_views_of_the_frame_and_are_not_copied():
    batch = bytes(range(256))
    request = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])])
    parts = encode(PRODUCE, 9, request)
    assert any(part is batch for part in parts)
    frame = joined(parts)
    decoded, _ = decode(PRODUCE, 9, memoryview(frame))
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame
    assert view == batch


def test_several_buffers_of_record_batches_are_one_field():
    def body(records: object) -> bytes:
        partition = PartitionData(records=records)  # type: ignore[arg-type] - both kinds are given
        return joined(encode(FETCH, 12, FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])))

    assert body([b"ab", memoryview(b"cde")]) == body(b"abcde")
    assert body([]) == body(PartitionData().records), "null records make librdkafka fail (KAFKA-18646)"
    assert body(None) != body(b"")


@pytest.mark.parametrize("version", [8, 9])
def test_a_string_has_at_most_the_bytes_that_an_int16_counts(version: int):
    """Kafka's generated classes refuse longer ones to read and to write, though a compact length could be larger."""
    longest = ProduceRequest("ü" * 16_383 + "x")
    frame = joined(encode(PRODUCE, version, longest))
    assert decode(PRODUCE, version, memoryview(frame)) == (replace(longest, topic_data=[]), len(frame))
    for text in ("ü" * 16_384, "x" * 32_768):
        with pytest.raises(ValueError, match="a string of 32768 bytes can't be written"):
            encode(PRODUCE, version, ProduceRequest(text))
    if version == 9:
        with pytest.raises(MalformedMessage, match="transactional_id is a string of more bytes"):
            decode(PRODUCE, version, memoryview(b"\x81\x80\x02" + b"x" * 2**15 + bytes(9)))
