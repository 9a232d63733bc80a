"""Batches that are rewritten keep what producers, readers and the log need (MemoryRecords.filterTo)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.record_batch import LOG_APPEND_TIME_BIT, crc_matches, make_batch, patch, read_header
from tidegauge_broker.formats.records import StoredRecord, decode_records
from tidegauge_broker.log.rewrite import empty_batch, rewrite_batch

HORIZON_MS = 1_800_000_000_000


def stored(batch, base_offset=100, leader_epoch=3):
    data = bytearray(batch)
    patch(data, 0, base_offset, leader_epoch)
    return bytes(data)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("horizon", [None, HORIZON_MS])
def test_what_is_left_keeps_offset_time_key_value_and_headers(batch, codec, horizon):
    data = stored(batch(5, codec=codec, producer_id=7, sequence=20))
    header = read_header(data)
    left = [record for record in decode_records(data) if record.offset in {101, 103}]
    written = rewrite_batch(header, left, horizon)
    after = read_header(written)
    assert crc_matches(written, after)
    assert list(decode_records(written)) == left
    assert after.delete_horizon_ms == horizon
    assert (after.base_offset, after.last_offset, after.record_count) == (100, 104, 2)
    assert (after.leader_epoch, after.producer_id, after.base_sequence) == (3, 7, 20)
    assert after.last_sequence == 24, "the producer's state can still be read from it"
    assert after.compression == codec
    assert after.max_timestamp_ms == left[-1].timestamp_ms
    assert after.base_timestamp_ms == (left[0].timestamp_ms if horizon is None else horizon)


def test_nothing_changes_when_all_is_left(batch):
    """The layout is the codec's own, byte for byte."""
    data = stored(batch(4, value=b"some value"))
    assert rewrite_batch(read_header(data), list(decode_records(data)), None) == data


def test_a_batch_without_records_is_a_header(batch):
    data = stored(batch(3, codec=4, producer_id=7, sequence=20))
    written = empty_batch(read_header(data))
    after = read_header(written)
    assert len(written) == 61
    assert crc_matches(written, after)
    assert list(decode_records(written)) == []
    assert (after.last_offset, after.last_sequence, after.record_count, after.compression) == (102, 22, 0, 0)
    assert (after.base_timestamp_ms, after.max_timestamp_ms) == (-1, read_header(data).max_timestamp_ms)


def test_the_leaders_clock_stays(batch):
    data = stored(batch(3))
    header = read_header(data)
    data = make_batch(header._replace(attributes=LOG_APPEND_TIME_BIT, max_timestamp_ms=77), data[61:])
    left = list(decode_records(data))[:1]
    after = read_header(rewrite_batch(read_header(data), left, None))
    assert after.max_timestamp_ms == 77
    assert left[0].timestamp_ms == 77


_BLANK = bytes(8) + (49).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(4 + 2 + 4 + 8 + 8) + b"\xff" * 14 + bytes(4)
_texts = st.binary(max_size=300) | st.none()
_records = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**50),
        _texts,
        _texts,
        st.lists(st.tuples(st.text(max_size=3), _texts)),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda row: row[0],
)


@given(_records, st.none() | st.integers(0, 2**45))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_any_record_is_read_back_as_it_was(rows, horizon):
    records = [
        StoredRecord(1000 + delta, time_ms, key, value, headers) for delta, time_ms, key, value, headers in sorted(rows)
    ]
    blank = read_header(_BLANK)._replace(base_offset=1000, last_offset_delta=2**31 - 1)
    written = rewrite_batch(blank, records, horizon)
    assert list(decode_records(written)) == records
