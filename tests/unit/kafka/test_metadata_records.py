"""Records of the metadata log: frames (AbstractApiMessageSerde), control records (ControlRecordUtils), their JSON."""

import random
import struct

import pytest
from tests.unit.kafka.random_messages import random_struct

from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.kraft.control_messages.kraft_version_record import KRaftVersionRecord
from tidegauge.kafka.kraft.control_messages.leader_change_message import LeaderChangeMessage, Voter
from tidegauge.kafka.kraft.control_types import (
    CONTROL_TYPES,
    control_class,
    control_number,
    decode_control,
    encode_control,
)
from tidegauge.kafka.kraft.json_text import json_text
from tidegauge.kafka.kraft.record_types import RECORD_TYPES, decode_record, encode_record, record_class
from tidegauge.kafka.metadata_records.client_quota_record import ClientQuotaRecord, EntityData
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord

TOPIC_ID = bytes(range(16))


def test_a_frame_is_a_version_a_type_a_version_and_the_message():
    """MetadataRecordSerde: three unsigned varints precede the message."""
    value = encode_record(FeatureLevelRecord("metadata.version", 30), 0)
    assert value == bytes.fromhex("01 0c 00 11") + b"metadata.version" + bytes.fromhex("00 1e 00")
    decoded = decode_record(value)
    assert (decoded.type.label, decoded.version) == ("FEATURE_LEVEL_RECORD", 0)
    assert decoded.message == FeatureLevelRecord("metadata.version", 30)


@pytest.mark.parametrize("record", RECORD_TYPES.values(), ids=lambda record: record.message)
def test_every_record_of_every_version_survives(record):
    """Encoded records decode to the same bytes; damage raises MalformedMessage alone."""
    for version in range(record.last + 1):
        rng = random.Random(f"{record.message} {version}")
        value = encode_record(random_struct(record_class(record.key), version, rng), version)
        decoded = decode_record(value)
        assert encode_record(decoded.message, decoded.version) == value
        assert json_text(decoded.message, version).startswith("{")
        for _ in range(40):
            damaged = bytearray(value)
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 127, 128, 255])
            try:
                decode_record(bytes(damaged[: rng.randrange(len(damaged) + 1)]))
            except MalformedMessage:
                continue


def test_an_empty_list_is_not_no_change():
    """KIP-631: in a PartitionChangeRecord null says "not changed", an empty list "set to empty"."""
    unchanged = encode_record(PartitionChangeRecord(3, TOPIC_ID), 0)
    emptied = encode_record(PartitionChangeRecord(3, TOPIC_ID, isr=[]), 0)
    assert unchanged == bytes.fromhex("01 05 00 00000003") + TOPIC_ID + b"\0"
    assert emptied == bytes.fromhex("01 05 00 00000003") + TOPIC_ID + bytes.fromhex("01 00 01 01")
    assert decode_record(unchanged).message.isr is None
    assert list(decode_record(emptied).message.isr) == []
    assert json_text(decode_record(emptied).message, 0) == (
        '{"partitionId":3,"topicId":"AAECAwQFBgcICQoLDA0ODw","isr":[]}'
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "has a value"),
        (b"", "not a metadata record"),
        (b"\x00\x0c\x00", "unknown frame version 0"),
        (b"\x02\x0c\x00", "unknown frame version 2"),
        (b"\x01\x63\x00", "Unknown metadata id 99"),
        (b"\x01\x0c\x01\x02a\x00\x01\x00", "FeatureLevelRecord has versions 0 to 0, not 1"),
        (b"\x01\x0c\x00\x02a", "not a metadata record"),
        (b"\x01\x0c\x00\x02a\x00\x01\x00\x00", "1 byte"),
        (b"\xff\xff\xff\xff\xff\xff", "longer than five bytes"),
    ],
)
def test_an_unknown_frame_is_malformed(value: bytes | None, reason: str):
    with pytest.raises(MalformedMessage, match=reason):
        decode_record(value)


def test_a_version_that_a_record_does_not_have_is_not_written():
    with pytest.raises(ValueError, match="FeatureLevelRecord has no version 1"):
        encode_record(FeatureLevelRecord("a", 1), 1)
    with pytest.raises(ValueError, match="KRaftVersionRecord has no version 1"):
        encode_control(KRaftVersionRecord(version=1))


def test_a_control_record_is_a_type_and_a_message_without_a_frame():
    """ControlRecordType: the key has version and type; the value begins with the version of its schema."""
    key, value = encode_control(LeaderChangeMessage(leader_id=100, voters=[Voter(100)], granting_voters=[]))
    assert key == struct.pack(">hh", 0, 2)
    assert value == bytes.fromhex("0000 00000064 02 00000064 00 01 00")
    assert encode_control(decode_control(key, value)) == (key, value)
    key, value = encode_control(LeaderChangeMessage(version=1, leader_id=1, voters=[Voter(1, TOPIC_ID)]))
    assert decode_control(key, value).voters[0].voter_directory_id == TOPIC_ID


@pytest.mark.parametrize("control", CONTROL_TYPES.values(), ids=lambda control: control.message)
def test_every_control_record_survives(control):
    for version in range(control.last + 1):
        message = random_struct(control_class(control.number), version, random.Random(version))
        message.version = version
        key, value = encode_control(message)
        assert control_number(key) == control.number
        assert encode_control(decode_control(key, value)) == (key, value)
        with pytest.raises(MalformedMessage):
            decode_control(key, value[:-1])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"", "four bytes"),
        (b"\0\0\0", b"", "four bytes"),
        (struct.pack(">hh", 0, 7), b"\0\0", "type 7 are unknown"),
        (struct.pack(">hh", 0, 5), None, "begins with a version"),
        (struct.pack(">hh", 0, 5), b"\0\1\0\1\0", "versions 0 to 0, not 1"),
    ],
)
def test_an_unknown_control_record_is_malformed(key: bytes | None, value: bytes | None, reason: str):
    with pytest.raises(MalformedMessage, match=reason):
        decode_control(key, value)


def test_json_is_written_as_jackson_does():
    """Doubles as Double.toString, control characters as upper-case escapes, other characters as they are."""
    quota = ClientQuotaRecord([EntityData("user", 'a"b\\c\né\x1f'), EntityData("client-id", None)], "rate", 1e7)
    assert json_text(quota, 0) == (
        '{"entity":[{"entityType":"user","entityName":"a\\"b\\\\c\\né\\u001F"},'
        '{"entityType":"client-id","entityName":null}],"key":"rate","value":1.0E7,"remove":false}'
    )
    assert '"value":"NaN"' in json_text(ClientQuotaRecord(value=float("nan")), 0)
    assert json_text(KRaftVersionRecord(kraft_version=1), 0) == '{"version":0,"kRaftVersion":1}'
