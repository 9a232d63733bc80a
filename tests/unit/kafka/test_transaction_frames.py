"""Frames of Apache Kafka 4.3.1, of versions that came with transactions v2 and topic ids: read and written again."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tidegauge.kafka.apis import APIS
from tidegauge.kafka.frames import codec_of, decode, joined, read_request_header
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL

KEYS = {api.name: key for key, api in APIS.items()}


class Frame(NamedTuple):
    """A request of Kafka's own classes and the response of its broker, without their lengths."""

    name: str
    version: int
    request: str
    response: str


FRAMES = [
    Frame(
        "EndTxn",
        5,
        "001a000500000067000570726f626500037478000000000000000100000000",
        "00000067000000000000000000000000000001000100",
    ),
    Frame(
        "Produce",
        12,
        "0000000c00000069000570726f626500037478ffff000013880203783102000000004800000000000000000000003bff"
        "ffffff0265eb1de4001000000000ffffffffffffffffffffffffffffffff000000000000000100010000000000000001"
        "12000000026b04763000000000",
        "000000690002037831020000000000000000000000000000ffffffffffffffff0000000000000000010000000000000000",
    ),
    Frame(
        "Produce",
        13,
        "0000000d0000006b000570726f626500037478ffff0000138802a6f3b609416649249f61f11dd4b023ba020000000048"
        "00000000000000000000003bffffffff0211c77892001000000000ffffffffffffffffffffffffffffffff0000000000"
        "0000010001000000010000000112000000026b04763100000000",
        "0000006b0002a6f3b609416649249f61f11dd4b023ba020000000000000000000000000001ffffffffffffffff000000"
        "0000000000010000000000000000",
    ),
    Frame(
        "TxnOffsetCommit",
        5,
        "001c000500000084000570726f62650003747803786700000000000000010004ffffffff010002037831020000000000"
        "00000000000001ffffffff01000000",
        "0000008400000000000203783102000000000000000000",
    ),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda one: f"{one.name} v{one.version}")
def test_frames_of_kafka_are_read_and_written_byte_for_byte(frame: Frame) -> None:
    key, codec = KEYS[frame.name], codec_of(KEYS[frame.name], frame.version, KRAFT_BROKER_PROTOCOL)
    request = memoryview(bytes.fromhex(frame.request))
    body_at = read_request_header(request, KRAFT_BROKER_PROTOCOL).body_at
    message, end = decode(key, frame.version, request, body_at, protocol=KRAFT_BROKER_PROTOCOL)
    assert (end, joined(codec.encode(message))) == (len(request), bytes(request[body_at:]))
    response = memoryview(bytes.fromhex(frame.response))
    _, body_at, _ = codec.read_response_header(response)
    message, end = codec.decode_response(response, body_at)
    assert (end, joined(codec.encode(message))) == (len(response), bytes(response[body_at:]))
