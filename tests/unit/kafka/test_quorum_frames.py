"""Frames of controllers and brokers of Apache Kafka 4.3.1 decode to their last byte and encode to the same bytes.

The APIs of a quorum have a table of their own: its Fetch has versions that ZooKeeper mode's must not have.
"""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.kafka.random_messages import random_struct

from tidegauge.kafka.apis import API_VERSIONS, APIS, FETCH
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import (
    UnsupportedRequest,
    decode,
    encode,
    joined,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
)
from tidegauge.kafka.kraft.apis import FETCH_SNAPSHOT, KRAFT_APIS, KRAFT_PROTOCOL, VOTE
from tidegauge.kafka.kraft.messages import broker_heartbeat, fetch
from tidegauge.kafka.kraft.record_types import encode_record
from tidegauge.kafka.metadata_records import partition_change_record

FRAMES = Path(__file__).parent / "recorded_quorum_frames.json.gz"
LENGTH_BYTES = 4


def recorded() -> Iterator[tuple[int, int, bool, bytes]]:
    """Key, version, whether it is a response, and the frame without its length."""
    for name, frames in json.loads(gzip.decompress(FRAMES.read_bytes())).items():
        key, version, direction = name.split(".")
        for frame in frames:
            yield int(key), int(version), direction == "resp", bytes.fromhex(frame)


def test_frames_of_kafkas_controllers_encode_to_the_same_bytes():
    """Of the quorum (KIP-595, KIP-630, KIP-853, KIP-996), of brokers (KIP-590, KIP-631, KIP-858), of admin clients."""
    seen: set[tuple[int, bool]] = set()
    for key, version, response, frame in recorded():
        view = memoryview(frame)
        if response:
            correlation_id, at = read_response_header(key, version, view, KRAFT_PROTOCOL)
            message, end = decode(key, version, view, at, response=True, protocol=KRAFT_PROTOCOL)
            written = response_frame(key, version, correlation_id, message, KRAFT_PROTOCOL)
        else:
            header = read_request_header(view, KRAFT_PROTOCOL)
            message, end = decode(key, version, view, header.body_at, protocol=KRAFT_PROTOCOL)
            ids = header.correlation_id, header.client_id
            written = request_frame(key, version, *ids, message, protocol=KRAFT_PROTOCOL)
        assert end == len(frame)
        assert joined(written)[LENGTH_BYTES:] == frame, message
        seen.add((key, response))
    of_the_quorum, of_brokers = (1, 18, 52, 53, 54, 55, 59, 80, 81), (56, 58, 60, 62, 63, 67, 70, 73)
    keys = {*of_the_quorum, *of_brokers, 19, 20, 43, 44, 45, 57, 64, 75}
    assert seen == {(key, response) for key in keys for response in (False, True)}


@pytest.mark.parametrize("api", KRAFT_APIS.values(), ids=lambda api: api.name)
def test_a_message_of_the_quorum_survives_and_damage_is_malformed(api):
    """Each API in each version, both directions: a frame of a stranger raises MalformedMessage alone."""
    for version in range(api.first, api.last + 1):
        for response in (False, True):
            rng = random.Random(f"{api.key} {version} {response}")
            message = random_struct(KRAFT_PROTOCOL.message_class(api.key, response=response), version, rng)
            body = joined(encode(api.key, version, message, KRAFT_PROTOCOL))
            decoded, end = decode(api.key, version, memoryview(body), response=response, protocol=KRAFT_PROTOCOL)
            assert end == len(body)
            assert joined(encode(api.key, version, decoded, KRAFT_PROTOCOL)) == body
            for _ in range(40):
                damaged = bytearray(body or b"\0")
                damaged[rng.randrange(len(damaged))] = rng.choice([0, 127, 128, 255])
                cut = memoryview(damaged)[: rng.randrange(len(damaged) + 1)]
                try:
                    decode(api.key, version, cut, response=response, protocol=KRAFT_PROTOCOL)
                except MalformedMessage:
                    continue


def test_a_tagged_field_that_equals_its_default_is_not_written():
    """Else records and frames differ from Kafka's in bytes; an unknown high watermark is sent as -1 (KIP-1166)."""
    plain, unknown = fetch.FetchPartition(), fetch.FetchPartition(high_watermark=-1)
    sizes = []
    for partition in (plain, unknown):
        asked = fetch.FetchRequest(topics=[fetch.FetchTopic(partitions=[partition])])
        sizes.append(len(joined(encode(FETCH, 18, asked, protocol=KRAFT_PROTOCOL))))
    assert plain.high_watermark == 2**63 - 1, "in versions without it the leader never waits for it"
    assert sizes[1] - sizes[0] == 10, "the tag, its size, and eight bytes"
    change = partition_change_record.PartitionChangeRecord(partition_id=1, topic_id=bytes(16))
    assert (change.leader, change.isr, change.leader_recovery_state) == (-2, None, -1)
    assert encode_record(change, 2) == bytes((1, 5, 2, 0, 0, 0, 1, *bytes(16), 0))
    assert broker_heartbeat.BrokerHeartbeatResponse().is_fenced, "a response that says nothing is no unfencing"


def test_zookeeper_modes_versions_stay_those_of_its_release():
    """A broker in ZooKeeper mode is true to 3.9.1: Fetch ends with version 17, and there is no API of a quorum."""
    assert APIS[FETCH].last == 17
    assert KRAFT_APIS[FETCH].last == 18
    assert KRAFT_APIS.keys() - APIS.keys() == {*range(52, 56), 58, 59, 62, 63, 64, 70, 73, 74, 75, 80, 81, 82}
    frame = memoryview(joined(request_frame(VOTE, 2, 1, "c", _vote(), protocol=KRAFT_PROTOCOL)))[LENGTH_BYTES:]
    assert read_request_header(frame, KRAFT_PROTOCOL).key == VOTE
    with pytest.raises(UnsupportedRequest):
        read_request_header(frame)
    with pytest.raises(UnsupportedRequest):
        decode(FETCH_SNAPSHOT, 2, frame, protocol=KRAFT_PROTOCOL)
    assert API_VERSIONS in KRAFT_APIS


def _vote():
    return KRAFT_PROTOCOL.message_class(VOTE, response=False)()
