"""RecordBatch v2 to Arrow: a round trip through aiokafka's builder, the range, the columns, the CRC."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import CONTROL_BIT, LOG_APPEND_TIME_BIT, patch
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_spark.decode import ArrowDecoder, arrow_schema
from tidegauge_spark.options import Columns

ORDERS_1 = TopicPartition("orders", 1)


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 1_700_000_000_123
    headers: tuple[tuple[str, bytes | None], ...] = ()


def build(
    rows: list[Row], base_offset: int, *, compression: int = 0, attributes: int = 0, leader_epoch: int = 3
) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 1 << 24)
    for index, row in enumerate(rows):
        assert builder.append(index, row.timestamp_ms, row.key, row.value, list(row.headers)) is not None
    buffer = bytearray(builder.build())
    if attributes:
        (old,) = struct.unpack_from(">h", buffer, 21)
        struct.pack_into(">h", buffer, 21, old | attributes)
        struct.pack_into(">I", buffer, 17, crc32c(bytes(buffer[21:])))
    patch(buffer, 0, base_offset, leader_epoch)
    return bytes(buffer)


def decode(decoder: ArrowDecoder, *buffers: bytes, high_watermark: int = 99) -> Any:
    batches = [batch for buffer in buffers for batch in decoder.decode(buffer, high_watermark)]
    batches += decoder.rest()
    return pa.Table.from_batches(batches, schema=batches[0].schema if batches else arrow_schema(Columns()))


def numbered(count: int) -> list[Row]:
    return [Row(b"k%d" % index, b"v%d" % index, 1_700_000_000_000 + index) for index in range(count)]


def test_records_of_aborted_transactions_give_no_rows_and_count_as_read() -> None:
    """KIP-98: also where a response ends in the midst of one, or holds nothing else."""
    mine, other = (NewRecord(b"aborted"),), (NewRecord(b"kept"),)

    def transactional(records: tuple[NewRecord, ...], producer_id: int, offset: int) -> bytes:
        return encode_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=0, base_offset=offset,
            is_transactional=True,
        )  # fmt: skip

    marker = bytearray(make_marker(TransactionMarker(7, 0, Outcome.ABORT, 0), 1_700_000_000_000))
    patch(marker, 0, 2, 3)
    buffer = transactional(mine, 7, 0) + transactional(other, 8, 1) + bytes(marker) + transactional(mine, 7, 3)
    decoder = ArrowDecoder(ORDERS_1, 0, 4)
    rows = [*decoder.decode(buffer, aborted=[(0, 7)]), *decoder.rest()]
    assert [value for batch in rows for value in batch.column("value").to_pylist()] == [b"kept", b"aborted"], (
        "what the producer wrote after its marker belongs to its next transaction"
    )
    assert decoder.done
    alone = ArrowDecoder(ORDERS_1, 0, 9)
    assert list(alone.decode(transactional(mine, 7, 0), aborted=[(0, 7)])) == []
    assert (alone.next_offset, list(alone.rest())) == (1, [])


@pytest.mark.parametrize("columns", [Columns(), Columns(headers=True), Columns(headers=True, leader_epoch=True)])
def test_schema_is_what_spark_wants(columns: Columns) -> None:
    """Trap 7: Spark compares names, types and nullability, and only of the first batch."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  (slow to import)

    from tidegauge_spark.source import spark_schema  # noqa: PLC0415  (imports pyspark)

    assert arrow_schema(columns).equals(to_arrow_schema(spark_schema(columns), timezone="UTC"))


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_round_trip_with_all_codecs_and_nulls(compression: int) -> None:
    rows = [Row(None, b"a"), Row(b"", None), Row(b"k", b"\x00\xff" * 500), Row(None, None, 0)]
    table = decode(ArrowDecoder(ORDERS_1, 40, 44), build(rows, 40, compression=compression))
    assert table.column("key").to_pylist() == [row.key for row in rows]
    assert table.column("value").to_pylist() == [row.value for row in rows]
    assert table.column("offset").to_pylist() == [40, 41, 42, 43]
    assert set(table.column("topic").to_pylist()) == {"orders"}
    assert set(table.column("partition").to_pylist()) == {1}
    milliseconds = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert milliseconds == [row.timestamp_ms * 1000 for row in rows]
    assert table.column("timestampType").to_pylist() == [0] * 4


def test_optional_columns() -> None:
    """Spark: headers only with includeHeaders, null when a record has none."""
    rows = [Row(b"k", b"v", headers=(("h", b"1"), ("h", None))), Row(b"k", b"v")]
    decoder = ArrowDecoder(ORDERS_1, 0, 2, Columns(headers=True, leader_epoch=True))
    table = decode(decoder, build(rows, 0, leader_epoch=7), high_watermark=2)
    assert table.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]
    assert table.column("leaderEpoch").to_pylist() == [7, 7]
    assert table.column("highWatermark").to_pylist() == [2, 2]


def test_log_append_time_is_the_batch_maximum() -> None:
    """With LogAppendTime every record has the batch's max timestamp, and timestampType 1."""
    table = decode(ArrowDecoder(ORDERS_1, 0, 3), build(numbered(3), 0, attributes=LOG_APPEND_TIME_BIT))
    assert table.column("timestampType").to_pylist() == [1, 1, 1]
    assert set(table.column("timestamp").cast(pa.int64()).to_pylist()) == {1_700_000_000_002_000}


def test_control_batches_give_no_rows_but_count_as_read() -> None:
    decoder = ArrowDecoder(ORDERS_1, 0, 5)
    table = decode(
        decoder, build(numbered(3), 0) + build(numbered(1), 3, attributes=CONTROL_BIT) + build(numbered(1), 4)
    )
    assert table.column("offset").to_pylist() == [0, 1, 2, 4]
    assert decoder.done


def test_a_gap_at_the_end_of_the_range_ends_it() -> None:
    """A compacted log may jump over the end offset: then the range is done, nothing is lost."""
    decoder = ArrowDecoder(ORDERS_1, 0, 5)
    table = decode(decoder, build(numbered(3), 0) + build(numbered(3), 7))
    assert table.column("offset").to_pylist() == [0, 1, 2]
    assert decoder.done


def test_bad_crc_is_refused_and_gives_nothing() -> None:
    buffer = bytearray(build(numbered(3), 10))
    buffer[-1] ^= 1
    decoder = ArrowDecoder(ORDERS_1, 10, 13)
    with pytest.raises(TidegaugeError, match="partition orders-1 at offset 10 is invalid") as caught:
        list(decoder.decode(bytes(buffer)))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert list(decoder.rest()) == []


def test_an_incomplete_batch_is_refused() -> None:
    decoder = ArrowDecoder(ORDERS_1, 0, 3)
    with pytest.raises(TidegaugeError, match="incomplete"):
        list(decoder.decode(build(numbered(3), 0)[:-5]))


def test_arrow_batches_have_the_wanted_size() -> None:
    buffer = b"".join(build(numbered(10), base) for base in range(0, 100, 10))
    decoder = ArrowDecoder(ORDERS_1, 0, 100, rows_per_batch=25)
    sizes = [batch.num_rows for batch in decoder.decode(buffer)] + [batch.num_rows for batch in decoder.rest()]
    assert sizes == [30, 30, 30, 10]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.data())
def test_exactly_the_range_comes_out(counts: list[int], data: st.DataObject) -> None:
    """However batches and buffers are split, each offset of [from, until) comes once and in order, and no other."""
    base, batches = 100, []
    for count in counts:
        batches.append((base, build(numbered(count), base)))
        base += count
    start = data.draw(st.integers(100, base - 1))
    end = data.draw(st.integers(start + 1, base))
    decoder = ArrowDecoder(ORDERS_1, start, end, rows_per_batch=3)
    got: list[int] = []
    while not decoder.done:
        position = max(index for index, (first, _) in enumerate(batches) if first <= decoder.next_offset)
        wanted = data.draw(st.integers(1, 3))
        buffer = b"".join(bytes_ for _, bytes_ in batches[position : position + wanted])
        got += [offset for batch in decoder.decode(buffer) for offset in batch.column("offset").to_pylist()]
    got += [offset for batch in decoder.rest() for offset in batch.column("offset").to_pylist()]
    assert got == list(range(start, end))
