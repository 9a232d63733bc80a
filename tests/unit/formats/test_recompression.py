"""The effect of a topic's ``compression.type`` on a batch (LogValidator.buildRecordsAndAssignOffsets)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.formats.record_sets import Pair, batch, pairs

from tidegauge.record_batch import CONTROL_BIT, LOG_APPEND_TIME_BIT, crc_matches, make_batch, read_header
from tidegauge_broker.formats.compression import Codec
from tidegauge_broker.formats.recompression import recompress
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.formats.times import with_create_time

codecs = st.integers(0, 4)


@given(codecs, codecs, pairs)
def test_only_the_codec_changes(source: int, target: int, records: list[Pair]) -> None:
    stored = batch(records, codec=source)
    header = read_header(stored)._replace(producer_id=7, producer_epoch=1, base_sequence=40)
    stored = make_batch(header, stored[61:])
    found = recompress(stored, read_header(stored), Codec(target))
    if source == target:
        assert found is None
        return
    assert found is not None
    changed_batch = found.batch()
    changed = read_header(changed_batch)
    assert crc_matches(changed_batch, changed)
    assert changed[6:13] == header[6:13]
    assert changed.compression == target
    assert list(decode_records(changed_batch)) == list(decode_records(stored))


def test_the_base_timestamp_is_the_first_records_and_the_largest_that_of_all() -> None:
    """Rule 2: a producer's header may say something else."""
    stored = batch([(b"a", b"1"), (b"b", b"2")])
    header = read_header(stored)
    wrong = make_batch(header._replace(max_timestamp_ms=header.max_timestamp_ms + 99), stored[61:])
    found = recompress(wrong, read_header(wrong), Codec(1))
    assert found is not None
    assert found.header[7:9] == header[7:9]


def test_markers_are_not_compressed() -> None:
    """Rule 1."""
    marker = batch([(b"k", b"v")], attributes=CONTROL_BIT)
    assert recompress(marker, read_header(marker), Codec(1)) is None


@pytest.mark.parametrize("codec", [0, 1])
def test_a_producers_claim_of_append_time_is_taken_out(codec: int) -> None:
    """DefaultRecordBatch.setMaxTimestamp, where the topic has CreateTime: only the attribute changes, and the CRC."""
    claimed = batch([(b"k", b"v")], codec=codec, attributes=LOG_APPEND_TIME_BIT)
    plain = with_create_time(claimed, read_header(claimed))
    assert plain == batch([(b"k", b"v")], codec=codec)
