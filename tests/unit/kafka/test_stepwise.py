"""Codecs that stop between items: the same bytes and values as the plain ones, in slices, beside other messages."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest
from tests.unit.kafka.random_messages import message_versions, random_message
from tests.unit.kafka.test_round_trip import comparable

from tidegauge.kafka import compiler, frames
from tidegauge.kafka.apis import APIS, FETCH, METADATA, PRODUCE
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import codec_of, decode, encode, joined
from tidegauge.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MESSAGES = list(message_versions())
BY_KEY = [[row for row in MESSAGES if row[0] == key] for key in APIS]


def ended(slices: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return what slices return, and how many times they stopped before."""
    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("rows", BY_KEY, ids=lambda rows: APIS[rows[0][0]].name)
def test_slices_read_and_write_what_the_plain_codec_does(rows: list[tuple[int, int, bool]]) -> None:
    for key, version, response in rows:
        for seed in range(3):
            message = random_message(key, version, seed, response=response)
            body = joined(encode(key, version, message))
            assert joined(ended(codec_of(key, version).encode_in_slices(message, 1))[0]) == body
            if not response:
                decoded, _ = ended(codec_of(key, version).decode_in_slices(memoryview(body), 0, 1))
                assert comparable(decoded) == comparable(message)


@pytest.mark.parametrize("rows", BY_KEY, ids=lambda rows: APIS[rows[0][0]].name)
def test_half_a_message_is_rejected_in_slices_too(rows: list[tuple[int, int, bool]]) -> None:
    for key, version, response in rows:
        if response:
            continue
        body = joined(encode(key, version, random_message(key, version, 1, response=False)))
        for length in range(len(body)):
            half = memoryview(body)[:length]
            try:
                whole = comparable(decode(key, version, half)[0])
            except MalformedMessage:
                with pytest.raises(MalformedMessage):
                    ended(codec_of(key, version).decode_in_slices(half, 0, 1))
            else:
                assert comparable(ended(codec_of(key, version).decode_in_slices(half, 0, 1))[0]) == whole


def test_a_slice_has_so_many_items_however_they_are_nested() -> None:
    flat = MetadataRequest([MetadataRequestTopic(name=f"t{number}") for number in range(1_000)])
    nested = ProduceRequest(
        None,
        1,
        1,
        [
            TopicProduceData(f"t{number}", partition_data=[PartitionProduceData(at, b"x") for at in range(10)])
            for number in range(100)
        ],
    )
    for key, version, message, items in ((METADATA, 9, flat, 1_000), (PRODUCE, 9, nested, 1_100)):
        body = memoryview(joined(encode(key, version, message)))
        assert ended(codec_of(key, version).decode_in_slices(body, 0, 100))[1] == items // 100
        assert ended(codec_of(key, version).encode_in_slices(message, 100))[1] == items // 100


def test_messages_that_are_decoded_side_by_side_each_have_the_limit_of_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_ITEMS bounds the memory of each message; slices of another one must neither use up nor renew it."""
    monkeypatch.setattr(compiler, "MAX_ITEMS", 10)
    body = memoryview(joined(encode(METADATA, 9, MetadataRequest([MetadataRequestTopic(name="t")] * 10))))
    first, second = (codec_of(METADATA, 9).decode_in_slices(body, 0, 3) for _ in range(2))
    for _ in range(3):
        next(first)
        next(second)
    assert len(ended(first)[0].topics) == len(ended(second)[0].topics) == 10
    topics = [TopicProduceData(str(number), partition_data=[PartitionProduceData(0, b"x")]) for number in range(6)]
    above = memoryview(joined(encode(PRODUCE, 9, ProduceRequest(None, 1, 1, topics))))
    third = codec_of(PRODUCE, 9).decode_in_slices(above, 0, 1)
    next(third)
    one = memoryview(joined(encode(METADATA, 9, MetadataRequest([MetadataRequestTopic(name="t")]))))
    assert len(decode(METADATA, 9, one)[0].topics) == 1
    with pytest.raises(MalformedMessage, match="items"):
        ended(third)


def test_record_batches_are_not_copied_into_the_bytes_around_them() -> None:
    batch = memoryview(bytes(100_000))
    partitions = [PartitionData(number, records=batch if number == 1 else b"") for number in range(3)]
    parts, _ = ended(
        codec_of(FETCH, 12).encode_in_slices(
            FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)]), 1
        )
    )
    assert [part is batch for part in parts] == [False, True, False]


def test_no_step_of_encoding_joins_the_parts_of_all_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one did: 52 ms of CPU for the response to a DescribeConfigs that names a topic 2,000 times."""
    joins: list[int] = []

    def noting(parts: Sequence[Any]) -> bytes:
        joins.append(len(parts))
        return joined(parts)

    message = MetadataRequest([MetadataRequestTopic(name=f"t{number}") for number in range(5_000)])
    monkeypatch.setattr(frames, "joined", noting)
    parts, slices = ended(codec_of(METADATA, 9).encode_in_slices(message, 100))
    assert joined(parts) == joined(encode(METADATA, 9, message))
    assert slices == 50
    assert joins
    assert max(joins) < 1_000
