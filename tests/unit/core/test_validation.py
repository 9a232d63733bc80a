"""Checks behind a sound header: each record of a producer's batch, compressed or not (LogValidator; 2.1).

The batches are put together byte by byte here, since no codec would make them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from core_harness import AT
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_NAMES, BatchHeader, make_batch
from tidegauge_broker.replica.messages import TopicRules
from tidegauge_broker.replica.validation import check_batch, only_batch

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip_encode,
    "snappy": snappy_encode,
    "lz4": lz4_encode,
    "zstd": zstd_encode,
}


def varint(value: int) -> bytes:
    """Zigzag, then seven bits a byte, the lowest first."""
    value = value << 1 ^ value >> 31
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(offset_delta: int, key: bytes | None = None, *, length: int | None = None) -> bytes:
    """One record; ``length`` is a lie about its size."""
    body = b"\0" + varint(0) + varint(offset_delta) + sized(key) + sized(b"value") + varint(0)
    return varint(len(body) if length is None else length) + body


def batch(records: bytes, count: int, codec: str = "none") -> bytes:
    """A batch whose header says ``count`` records, with a CRC that fits."""
    header = BatchHeader(0, 0, -1, 2, 0, COMPRESSION_NAMES.index(codec), count - 1, 0, 0, -1, -1, -1, count, 0)
    return make_batch(header, CODECS[codec](records))


def outcome(data: bytes, rules: TopicRules | None = None) -> ErrorCode:
    try:
        check_batch(data, only_batch(data), AT, rules or TopicRules(), now_ms=0)
    except TidegaugeError as refusal:
        return refusal.code
    return ErrorCode.NONE


def joined(deltas: Sequence[int]) -> bytes:
    return b"".join(map(record, deltas))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("records", "count"),
    [
        (joined([0, 2]), 2),
        (joined([1, 2]), 2),
        (joined([0, 0]), 2),
        (joined([1, 0]), 2),
        (joined([0, -1]), 2),
        (joined([0, 1, 2]), 2),
        (joined([0, 1]), 3),
        (joined([0, 1]) + b"\0", 2),
        (record(0) + record(1, length=5), 2),
        (record(0) + record(1, length=500), 2),
        (b"x" * 40, 2),
    ],
    ids=["gap", "begins-at-1", "twice", "backwards", "negative", "more", "fewer", "tail", "short", "long", "rubbish"],
)
def test_records_that_dont_fit_their_header_are_refused(codec: str, records: bytes, count: int) -> None:
    """Consecutive offsets from 0, as many records as the header says, and nothing behind them (INVALID_RECORD)."""
    assert outcome(batch(records, count, codec)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_fit_are_taken(codec: str) -> None:
    assert outcome(batch(joined(range(300)), 300, codec)) is ErrorCode.NONE


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_wants_the_key_of_each_record(codec: str) -> None:
    """LogValidator.validateKey: one record without a key refuses the batch; an empty key is one."""
    compacted = TopicRules(compacted=True)
    assert outcome(batch(record(0, b"k") + record(1, b""), 2, codec), compacted) is ErrorCode.NONE
    assert outcome(batch(record(0, b"k") + record(1), 2, codec), compacted) is ErrorCode.INVALID_RECORD
    assert outcome(batch(record(0, b"k") + record(2, b"k"), 2, codec), compacted) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_a_compressed_block_that_is_none_is_refused(codec: str) -> None:
    header = BatchHeader(0, 0, -1, 2, 0, COMPRESSION_NAMES.index(codec), 1, 0, 0, -1, -1, -1, 2, 0)
    refused = outcome(make_batch(header, joined([0, 1])))
    assert refused in {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}


@given(
    st.lists(st.integers(-1, 4), min_size=1, max_size=5),
    st.integers(-1, 1),
    st.sampled_from([b"", b"\0", b"\x02"]),
    st.sampled_from(list(CODECS)),
    st.booleans(),
    st.data(),
)
def test_a_batch_is_taken_if_and_only_if_every_rule_holds(
    deltas: list[int], more: int, tail: bytes, codec: str, compacted: bool, data: st.DataObject
) -> None:
    """The twin looks at the list of which the bytes were made."""
    keys = data.draw(st.lists(st.sampled_from([None, b"", b"k"]), min_size=len(deltas), max_size=len(deltas)))
    if data.draw(st.booleans()):
        deltas = list(range(len(deltas)))
    count = len(deltas) + more
    is_sound = (
        count == len(deltas) and deltas == list(range(len(deltas))) and not tail and (not compacted or None not in keys)
    )
    content = b"".join(map(record, deltas, keys)) + tail
    reported = (
        outcome(batch(content, count, codec), TopicRules(compacted=compacted)) if count else ErrorCode.INVALID_RECORD
    )
    assert reported is (ErrorCode.NONE if is_sound else ErrorCode.INVALID_RECORD)
