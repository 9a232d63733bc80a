"""RecordBatch v2 headers, byte for byte (DefaultRecordBatch)."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tidegauge import record_batch
from tidegauge.errors import ErrorCode, TidegaugeError


def a_batch(count: int = 3, producer_id: int = -1, sequence: int = -1) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for index in range(count):
        builder.append(index, 1_700_000_000_000 + index, b"k", b"v%d" % index, [])
    return bytes(builder.build())


def test_fields_stand_where_kafka_puts_them():
    data = a_batch(3, producer_id=77, sequence=5)
    header = record_batch.read_header(data)
    assert header.base_offset == struct.unpack_from(">q", data, 0)[0] == 0
    assert header.batch_length == len(data) - 12
    assert header.magic == data[16] == 2
    assert header.crc == struct.unpack_from(">I", data, 17)[0] == crc32c(data[21:])
    assert header.last_offset_delta == 2
    assert header.base_timestamp_ms == 1_700_000_000_000
    assert header.max_timestamp_ms == 1_700_000_000_002
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 0, 5)
    assert header.record_count == 3
    assert header.size_bytes == len(data)
    assert header.last_sequence == 7
    assert record_batch.crc_matches(data, header)


def test_the_last_sequence_counts_from_the_first_whoever_the_producer_is():
    """DefaultRecordBatch.lastSequence looks at the base sequence alone; some clients write 0 there without an id."""
    header = record_batch.read_header(a_batch(3))
    assert (header.base_sequence, header.last_sequence) == (-1, -1)
    assert header._replace(base_sequence=0).last_sequence == 2
    assert header._replace(base_sequence=2**31 - 1).last_sequence == 1


def test_base_offset_and_epoch_lie_outside_the_crc():
    data = bytearray(a_batch())
    record_batch.patch(data, 0, 4711, 9)
    header = record_batch.read_header(data)
    assert (header.base_offset, header.leader_epoch, header.last_offset, header.next_offset) == (4711, 9, 4713, 4714)
    assert record_batch.crc_matches(data, header)


@given(st.integers(min_value=21, max_value=80), st.integers(min_value=1, max_value=255))
def test_any_flipped_byte_from_21_on_breaks_the_crc(position, flip):
    data = bytearray(a_batch())
    header = record_batch.read_header(data)
    data[min(position, len(data) - 1)] ^= flip
    assert not record_batch.crc_matches(data, header)


def test_several_batches_are_read_one_after_the_other():
    first, second = a_batch(2), a_batch(4)
    headers = list(record_batch.iterate_headers(first + second))
    assert [(h.position, h.record_count) for h in headers] == [(0, 2), (len(first), 4)]
    assert record_batch.crc_matches(first + second, headers[1])


@pytest.mark.parametrize("cut", [1, 30, 60, 62])
def test_an_incomplete_batch_is_corrupt(cut):
    with pytest.raises(TidegaugeError) as error:
        list(record_batch.iterate_headers(a_batch() + a_batch()[:cut]))
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [1, 11, 12, 60, 61, 62])
def test_a_last_batch_that_a_fetch_has_in_part_is_left_out(length):
    """ByteBufferLogInputStream.nextBatch."""
    first = a_batch()
    [header] = record_batch.iterate_headers(first + a_batch()[:length], may_end_within_batch=True)
    assert header.size_bytes == len(first)


def test_a_first_batch_must_be_whole():
    """A leader sends at least one (KIP-74), so it is damage; Kafka would fetch the same bytes for ever."""
    with pytest.raises(TidegaugeError) as error:
        list(record_batch.iterate_headers(a_batch()[:-1], may_end_within_batch=True))
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


def test_another_magic_is_corrupt():
    data = bytearray(a_batch())
    data[16] = 1
    with pytest.raises(TidegaugeError, match="magic 1"):
        record_batch.read_header(data)


@pytest.mark.parametrize(
    ("sequence", "by", "expected"),
    [(0, 0, 0), (5, 2, 7), (2**31 - 1, 1, 0), (2**31 - 2, 3, 1), (2**31 - 1, 0, 2**31 - 1)],
)
def test_sequences_wrap_from_2147483647_to_0(sequence, by, expected):
    assert record_batch.increment_sequence(sequence, by) == expected
