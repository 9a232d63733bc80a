"""Message formats 0 and 1: other libraries' messages are read, and they read ours (KIP-31, KIP-32)."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.formats.record_sets import (
    GZIP,
    LZ4,
    SNAPPY,
    TIME_MS,
    MemoryRecords,
    Pair,
    built,
    expected,
    of_aiokafka,
    one,
    pairs,
    read,
)

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import LOG_APPEND_TIME_BIT
from tidegauge_broker.formats.messages import (
    Message,
    each_unwrapped,
    is_message_set,
    read_messages,
    wrap,
    write_message,
)


@given(of_aiokafka, pairs)
def test_what_aiokafka_writes_is_read(kind: tuple[int, int], records: Sequence[Pair]) -> None:
    magic, codec = kind
    assert read(built(magic, codec, records)) == expected(magic, records)


def written(magic: int, codec: int, records: Sequence[Pair], first_offset: int) -> bytes:
    is_relative = codec and magic
    messages = b"".join(
        write_message((0 if is_relative else first_offset) + index, magic, TIME_MS + index, key, value)
        for index, (key, value) in enumerate(records)
    )
    if not codec:
        return messages
    last = len(records) - 1
    return wrap(messages, codec, magic, first_offset + last, TIME_MS + last)


@given(
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from([0, GZIP]),
    records=pairs,
    first_offset=st.sampled_from([0, 5000]),
)
def test_what_is_written_kafka_python_reads(magic: int, codec: int, records: Sequence[Pair], first_offset: int) -> None:
    batches: Any = MemoryRecords(written(magic, codec, records, first_offset))
    found = []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    wanted = [
        (first_offset + offset, time_ms if magic else None, key, value)
        for offset, time_ms, key, value in expected(magic, records)
    ]
    assert found == wanted


@given(magic=st.sampled_from([0, 1]), codec=st.sampled_from([GZIP, SNAPPY]), records=pairs)
def test_what_is_written_aiokafka_reads(magic: int, codec: int, records: Sequence[Pair]) -> None:
    batch: Any = LegacyRecordBatch(bytearray(written(magic, codec, records, 70)), magic)
    assert [record.offset for record in batch] == list(range(70, 70 + len(records)))


def test_a_part_of_a_message_at_the_end_is_ignored() -> None:
    """Rule 1: a fetch of old clients may end in the middle of a message, and so may a set that is sent back."""
    whole = one(1) + one(1)
    for length in range(len(whole) + 1):
        assert len(list(read_messages(whole[:length]))) == length // len(one(1))


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (struct.pack(">qi", 0, 13) + bytes(13), ErrorCode.CORRUPT_MESSAGE),
        (struct.pack(">qi", 0, -1) + bytes(13), ErrorCode.CORRUPT_MESSAGE),
        (one(3), ErrorCode.CORRUPT_MESSAGE),
        (one(0) + one(1), ErrorCode.INVALID_RECORD),
        (struct.pack(">qi", 0, 22) + one(1)[12:26] + struct.pack(">ii", 1 << 20, 0), ErrorCode.CORRUPT_MESSAGE),
        (struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_is_no_message_set_is_refused(records: bytes, error: ErrorCode) -> None:
    with pytest.raises(TidegaugeError) as refused:
        list(read_messages(records))
    assert refused.value.code is error


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(records: bytes) -> None:
    with contextlib.suppress(TidegaugeError):
        for message in read_messages(records):
            if message.codec:
                list(each_unwrapped(message))


def wrapper(inner: bytes, offset: int = 0, *, magic: int = 1, attributes: int = 0) -> Message:
    return next(iter(read_messages(wrap(inner, GZIP, magic, offset, TIME_MS, attributes))))


@pytest.mark.parametrize(
    ("offset", "offsets"),
    [(0, [0, 1, 2]), (2, [0, 1, 2]), (90, [88, 89, 90])],
)
def test_inner_offsets_are_relative_to_the_wrapper(offset: int, offsets: list[int]) -> None:
    """Rule 2: the wrapper has the last offset, or 0 as some versions of librdkafka write it."""
    inner = b"".join(one(1, offset=index) for index in range(3))
    assert [message.offset for message in list(each_unwrapped(wrapper(inner, offset)))] == offsets


@pytest.mark.parametrize(
    "make",
    [
        lambda: wrapper(one(1, offset=3), 2),
        lambda: wrapper(b""),
        lambda: wrapper(wrap(one(1), GZIP, 1, 0, 0)),
        lambda: next(iter(read_messages(one(1, None, attributes=GZIP)))),
        lambda: next(iter(read_messages(one(1, attributes=4)))),
        lambda: next(iter(read_messages(one(1, attributes=7)))),
    ],
)
def test_a_wrapper_that_kafka_calls_invalid(make: Callable[[], Message]) -> None:
    """Rules 2 and 4, and the codecs that the formats have: zstd came with batches."""
    with pytest.raises(TidegaugeError) as refused:
        list(each_unwrapped(make()))
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_with_log_append_time_the_wrappers_time_is_that_of_all() -> None:
    """Rule 3."""
    inner = write_message(0, 1, 5, None, b"a") + write_message(1, 1, 9, None, b"b")
    kinds = {0: [5, 9], LOG_APPEND_TIME_BIT: [TIME_MS, TIME_MS]}
    for attributes, times in kinds.items():
        assert [one.timestamp_ms for one in list(each_unwrapped(wrapper(inner, attributes=attributes)))] == times


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_cannot_be_decompressed_is_corrupt(codec: int, magic: int) -> None:
    with pytest.raises(TidegaugeError) as refused:
        list(each_unwrapped(next(iter(read_messages(one(magic, b"not compressed at all", attributes=codec))))))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_bomb_is_not_decompressed() -> None:
    """A message of 400 KB would take 400 MB."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(110)) + deflate.flush()
    with pytest.raises(TidegaugeError) as refused:
        list(each_unwrapped(next(iter(read_messages(one(0, bomb, attributes=GZIP))))))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_message_set_is_known_by_its_magic() -> None:
    assert is_message_set(one(0))
    assert is_message_set(one(1))
    assert is_message_set(b"")
    assert not is_message_set(one(2))
