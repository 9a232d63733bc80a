"""The record codec: bytes of RecordBatch v2, encoded and decoded (DefaultRecordBatch)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_NAMES, crc_matches, patch, read_header
from tidegauge_client.records import (
    BatchBuilder,
    NewRecord,
    decode_batches,
    encode_batch,
    estimate_size_bytes,
    restamp,
)

optional_bytes = st.none() | st.binary(max_size=40)
new_records = st.lists(
    st.builds(
        NewRecord,
        value=optional_bytes,
        key=optional_bytes,
        timestamp_ms=st.integers(0, 2**41),
        headers=st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(new_records, st.sampled_from(COMPRESSION_NAMES), st.integers(0, 2**40))
def test_what_is_encoded_is_decoded_again(records: list[NewRecord], compression: str, base_offset: int) -> None:
    data = encode_batch(records, compression=compression, base_offset=base_offset, leader_epoch=7)

    decoded = list(decode_batches(data))

    assert [(r.value, r.key, r.timestamp_ms, list(r.headers)) for r in decoded] == [
        (r.value, r.key, r.timestamp_ms, list(r.headers)) for r in records
    ]
    assert [r.offset for r in decoded] == list(range(base_offset, base_offset + len(records)))
    assert {r.leader_epoch for r in decoded} == {7}


def test_the_header_carries_the_producer_state() -> None:
    """KIP-98: id, epoch and base sequence are in the batch, and the CRC covers them."""
    data = encode_batch([NewRecord(b"a"), NewRecord(b"b")], producer_id=9, producer_epoch=2, base_sequence=41)

    header = read_header(data)

    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 41, 42)
    assert (header.record_count, header.size_bytes) == (2, len(data))
    assert crc_matches(data, header)


def test_restamp_changes_only_the_producer_state_and_keeps_the_crc_right() -> None:
    data = encode_batch([NewRecord(b"a", b"k", 5)], producer_id=9, producer_epoch=2, base_sequence=41)

    changed = restamp(data, producer_id=9, producer_epoch=3, base_sequence=0)

    assert changed == encode_batch([NewRecord(b"a", b"k", 5)], producer_id=9, producer_epoch=3, base_sequence=0)


def test_reading_begins_at_the_offset_asked_for() -> None:
    """The first batch of a fetch may begin below the fetch offset; its earlier records are not given."""
    data = encode_batch([NewRecord(b"0"), NewRecord(b"1"), NewRecord(b"2")]) + encode_batch(
        [NewRecord(b"3"), NewRecord(b"4")], base_offset=3
    )

    assert [r.value for r in decode_batches(data, 2)] == [b"2", b"3", b"4"]
    assert [r.value for r in decode_batches(data, 4)] == [b"4"]
    assert list(decode_batches(data, 5)) == []
    assert list(decode_batches(b"")) == []


def test_log_append_time_gives_every_record_the_largest_timestamp() -> None:
    data = bytearray(encode_batch([NewRecord(b"a", None, 10), NewRecord(b"b", None, 30)]))
    data[22] |= 0x08

    assert [(r.timestamp_ms, r.timestamp_type) for r in decode_batches(bytes(data), check_crc=False)] == [
        (30, 1),
        (30, 1),
    ]


def test_control_batches_are_skipped() -> None:
    data = bytearray(encode_batch([NewRecord(b"a")]))
    data[22] |= 0x20

    assert list(decode_batches(bytes(data), check_crc=False)) == []


def test_a_flipped_bit_is_found_by_the_crc() -> None:
    data = bytearray(encode_batch([NewRecord(b"a" * 30)]))
    data[-3] ^= 1

    with pytest.raises(TidegaugeError, match="CRC") as caught:
        list(decode_batches(bytes(data)))

    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_malformed_record_is_named_even_without_the_crc() -> None:
    data = bytearray(encode_batch([NewRecord(b"a" * 30)]))
    data[61] = 0xFF

    with pytest.raises(TidegaugeError) as caught:
        list(decode_batches(bytes(data), check_crc=False))

    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_cannot_be_decompressed_is_named_even_without_the_crc(codec: str) -> None:
    """The codecs have errors of their own; a user sees Kafka's."""
    data = bytearray(encode_batch([NewRecord(b"a" * 300)], compression=codec))
    data[61:] = b"\xff" * len(data[61:])

    with pytest.raises(TidegaugeError) as caught:
        list(decode_batches(bytes(data), check_crc=False))

    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_setting_offset_and_epoch_leaves_the_crc_right() -> None:
    data = bytearray(encode_batch([NewRecord(b"a")]))
    patch(data, 0, 100, 3)

    assert [(r.offset, r.leader_epoch) for r in decode_batches(bytes(data))] == [(100, 3)]


def test_a_builder_refuses_what_does_not_fit_but_takes_any_first_record() -> None:
    builder = BatchBuilder(max_size_bytes=100)

    assert builder.append(b"x" * 500, None, 1)
    assert not builder.append(b"y", None, 1)
    assert builder.record_count == 1
    size = builder.size_bytes
    assert len(builder.build()) == size


def test_an_unknown_compression_is_refused_by_name() -> None:
    with pytest.raises(TidegaugeError, match="brotli") as caught:
        encode_batch([NewRecord(b"a")], compression="brotli")

    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(TidegaugeError) as caught:
        encode_batch([])

    assert caught.value.code is ErrorCode.INVALID_RECORD


@settings(max_examples=60, deadline=None)
@given(optional_bytes, optional_bytes, st.lists(st.tuples(st.text(max_size=20), optional_bytes), max_size=3))
def test_the_estimate_is_never_too_small(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    """buffer.memory and max.request.size are judged before anything is encoded."""
    assert len(encode_batch([NewRecord(value, key, 2**41, headers)])) <= estimate_size_bytes(key, value, headers)
