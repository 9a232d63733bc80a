"""Frames recorded between real clients and Apache Kafka 3.9.1 decode to their last byte and encode to the same bytes.

The clients: Kafka's console tools 3.9 and 4.3, Spark's connector, librdkafka 2.0 and 2.16, aiokafka, kafka-python,
franz-go, sarama, kafkajs. Each API version that one of them sent is there, in both directions.
"""

import pytest
from tests.unit.kafka.random_messages import recorded_frames

from tidegauge.kafka.apis import API_VERSIONS, APIS, METADATA
from tidegauge.kafka.frames import decode, encode, joined, read_request_header, read_response_header

LIBRDKAFKA_SURPLUS = 3


def spoken(key: int, version: int) -> int:
    """ApiVersions of a version that 3.9.1 does not know is responded to in version 0 (KIP-511)."""
    return 0 if key == API_VERSIONS and version > APIS[key].last else version


@pytest.mark.parametrize("key", sorted({key for key, *_ in recorded_frames()}))
def test_frames_of_real_clients_encode_to_the_same_bytes(key: int):
    seen = 0
    for recorded_key, version, response, frame in recorded_frames():
        if recorded_key != key:
            continue
        view = memoryview(frame)
        asked = spoken(key, version)
        if response:
            _, body_at = read_response_header(key, asked, view)
        else:
            header = read_request_header(view)
            assert (header.key, header.version) == (key, version)
            body_at = header.body_at
        message, end = decode(key, asked, view, body_at, response=response)
        body = joined(encode(key, asked, message))
        assert body == frame[body_at:end], message
        assert end == len(frame) or (key == METADATA and end == len(frame) - LIBRDKAFKA_SURPLUS), message
        seen += 1
    assert seen


def test_the_recording_has_every_direction_of_the_hot_path():
    seen = {(key, version, response) for key, version, response, _ in recorded_frames()}
    assert {(0, 7, False), (0, 11, True), (1, 11, False), (1, 17, True), (3, 12, True), (2, 9, False)} <= seen
    assert len(seen) > 190


def test_surplus_bytes_behind_a_request_are_ignored():
    """librdkafka asks for all topics in Metadata v9+ with three bytes behind the request."""
    asked = bytes.fromhex("00 00 00 00 01 00 00")
    message, end = decode(METADATA, 12, memoryview(asked))
    assert message.topics is None
    assert end == len(asked) - LIBRDKAFKA_SURPLUS
