"""Record batches for consumers that know only message sets (RecordsUtil.downConvert, LazyDownConversionRecords)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.formats.record_sets import GZIP, LZ4, SNAPPY, TIME_MS, Pair, batch, by_kafka_python, pairs, read, single

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import CONTROL_BIT, LOG_APPEND_TIME_BIT
from tidegauge_broker.formats.compression import ZSTD
from tidegauge_broker.formats.down_conversion import down_convert


@given(magic=st.sampled_from([0, 1]), codec=st.sampled_from([0, GZIP]), records=pairs)
def test_kafka_python_reads_a_converted_batch(magic: int, codec: int, records: Sequence[Pair]) -> None:
    """Rule 1: offsets, keys and values stay, times in format 1 alone, headers in none."""
    conversion = down_convert(batch(records, 700, codec), magic, 700)
    wanted = [(700 + at, TIME_MS + at if magic else None, *pair) for at, pair in enumerate(records)]
    assert by_kafka_python(conversion.records) == wanted
    assert conversion.record_count == len(records)


@given(codec=st.sampled_from([SNAPPY, LZ4]), records=pairs)
def test_aiokafka_reads_a_converted_batch(codec: int, records: Sequence[Pair]) -> None:
    """Of the codecs for which kafka-python has no library; it knows no LZ4 of format 0."""
    for magic in (1,) if codec == LZ4 else (0, 1):
        converted = down_convert(batch(records, 700, codec), magic, 700).records
        decoded: Any = LegacyRecordBatch(bytearray(converted), magic)
        assert [(one.offset, one.key, one.value) for one in decoded] == [
            (700 + at, *pair) for at, pair in enumerate(records)
        ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_gaps_that_compaction_left_stay(magic: int, codec: int) -> None:
    stored = batch([(b"a", b"1"), (b"b", b"2")], 10, codec, offsets=(11, 15))
    assert [record[0] for record in read(down_convert(stored, magic, 0).records)] == [11, 15]


@pytest.mark.parametrize(("codec", "offsets"), [(0, [2, 3]), (GZIP, [0, 1, 2, 3])])
def test_records_below_the_wanted_offset(codec: int, offsets: list[int]) -> None:
    """Rule 2."""
    stored = batch([(None, bytes([at])) for at in range(4)], codec=codec)
    assert [record[0] for record in by_kafka_python(down_convert(stored, 1, 2).records)] == offsets


def test_log_append_time_is_that_of_all_and_says_so() -> None:
    stored = batch([(None, b"a"), (None, b"b")], attributes=LOG_APPEND_TIME_BIT)
    records = down_convert(stored, 1, 0).records
    assert [record[1] for record in read(records)] == [TIME_MS + 1] * 2
    assert records[17] == LOG_APPEND_TIME_BIT


def filler(room_bytes: int) -> bytes:
    return (struct.pack(">qi", -1, max(room_bytes + 1, 61)) + bytes(room_bytes))[:room_bytes]


def test_the_room_that_is_left_is_filled_with_a_message_that_does_not_fit() -> None:
    """Rule 4: the response is as long as the stored batches, or as the first converted one."""
    small = single(b"v", 0)
    messages = 34 + 1
    assert down_convert(small, 1, 0).records[messages:] == filler(len(small) - messages)
    many = batch([(None, b"v")] * 50)
    assert len(down_convert(many, 1, 0).records) == 50 * messages > len(many)
    cut = down_convert(many + single(b"v", 50), 1, 0).records
    assert len(cut) == 50 * messages, "the first converted batch takes all the room"


def test_nothing_is_converted_to_nothing() -> None:
    assert down_convert(b"", 0, 0) == (b"", 0)


def test_where_no_record_is_left_there_is_the_beginning_of_a_message() -> None:
    """Rule 4: a client takes it for one that is too large, as Kafka wants it to."""
    control = single(b"v", 0, attributes=CONTROL_BIT)
    emptied = batch([], 1)
    for stored in (control, emptied, control + emptied):
        assert down_convert(stored, 0, 0).records == struct.pack(">qi", -1, 61)


def test_markers_and_emptied_batches_are_left_out() -> None:
    """Rule 1."""
    stored = (
        single(b"a" * 90, 0)
        + single(b"marker", 1, attributes=CONTROL_BIT)
        + batch([], 2)
        + single(b"b" * 90, 3)
        + single(b"c", 4)
    )
    assert [record[3][:1] for record in by_kafka_python(down_convert(stored, 0, 0).records)] == [b"a", b"b", b"c"]


def test_behind_a_marker_at_the_begin_records_come_twice() -> None:
    """Rule 5, a flaw of Kafka 3.9.1's LazyDownConversionRecords that clients see: it passes over one batch only."""
    stored = single(b"m" * 200, 0, attributes=CONTROL_BIT) + single(b"a", 1) + single(b"b", 2)
    assert [record[0] for record in by_kafka_python(down_convert(stored, 1, 0).records)] == [1, 1, 2]


def test_zstd_is_an_error_of_the_first_batch_and_an_end_later() -> None:
    """Rule 3; the client comes again from there, and gets the error then."""
    zstd = single(b"z", 1, codec=ZSTD)
    with pytest.raises(TidegaugeError) as refused:
        down_convert(zstd + single(b"a", 2), 1, 0)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    stored = single(b"a", 0) + zstd + single(b"b", 2)
    found = down_convert(stored, 1, 0).records
    assert [record[0] for record in by_kafka_python(found)] == [0]
    assert len(found) == len(stored)


def test_large_rooms_are_filled_piece_by_piece() -> None:
    """Rules 4 and 5: pieces of 128 KB at most, each with the beginning of a message of its own."""
    stored = single(b"a", 0) + single(bytes(300_000), 1, codec=ZSTD)
    rest = single(b"x" * 200_000, 2) + single(b"y" * 200_000, 3)
    found = down_convert(stored + rest, 1, 0).records
    assert len(found) == len(stored + rest)
    at = found.index(struct.pack(">q", -1))
    room = len(found) - at
    assert struct.unpack_from(">qi", found, at + 131_072) == (-1, room - 131_072 + 1)
