"""The vectorised decoder gives what the plain one gives, whatever the batches hold, and rejects what it does."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import HEADER_BYTES, LOG_APPEND_TIME_BIT, iterate_headers, make_batch, patch, read_header
from tidegauge_spark import columnar, plain
from tidegauge_spark.decode import ArrowDecoder
from tidegauge_spark.options import Columns
from tidegauge_spark.pending import BadRecordsError, PendingBatch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
short = st.one_of(st.none(), st.binary(max_size=3), st.integers(60, 70).map(lambda size: b"x" * size))
long = st.one_of(st.none(), st.sampled_from([b"", b"v" * 100, b"v" * 100, b"w" * 600]), st.binary(max_size=40))
times = st.one_of(st.integers(-70, 70), st.integers(0, 2**42))
header = st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3)))
record = st.tuples(short, long, times, st.lists(header, max_size=3))


def build(records: list[Any], gaps: list[int], codec: int, base_offset: int, attributes: int = 0) -> bytes:
    """A batch whose offsets leave gaps, as compaction does."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 26)
    offset = 0
    for (key, value, time, headers), gap in zip(records, gaps, strict=True):
        assert builder.append(offset, 1_700_000_000_000 + time, key, value, headers) is not None
        offset += gap
    buffer = bytearray(builder.build())
    patch(buffer, 0, base_offset, 4)
    first = read_header(buffer)
    return make_batch(first._replace(attributes=first.attributes | attributes), bytes(buffer[HEADER_BYTES:]))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Batches of a partition, one behind the other; often of one shape, as a producer at work makes them."""
    buffer, base_offset = b"", 10
    for _ in range(draw(st.integers(1, 3))):
        records = draw(st.lists(record, min_size=1, max_size=5)) * draw(st.sampled_from([1, 1, 1, 1, 60]))
        gap = draw(st.sampled_from([1, 1, 3, 200]))
        codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
        attributes = draw(st.sampled_from([0, 0, LOG_APPEND_TIME_BIT]))
        for _ in range(draw(st.sampled_from([1, 1, 4]))):
            one = build(records, [gap] * len(records), codec, base_offset, attributes)
            buffer += one
            base_offset = read_header(one).next_offset
    return buffer


def pending(buffer: bytes, from_offset: int = 0) -> list[PendingBatch]:
    headers = list(iterate_headers(buffer))
    return [PendingBatch(buffer, one, from_offset, 100 + index) for index, one in enumerate(headers)]


def rows(module: Any, some: list[PendingBatch], until_offset: int, *, with_headers: bool = True) -> list[Any]:
    columns = module.read_columns(some, until_offset, with_headers=with_headers)
    for column in columns:
        if column is not None:
            column.validate(full=True)
    return [None if column is None else (str(column.type), column.to_pylist()) for column in columns]


@settings(max_examples=examples(80), deadline=None)
@given(batches(), st.integers(0, 60), st.integers(0, 1_000), st.booleans())
def test_the_quick_way_gives_what_the_plain_way_gives(
    buffer: bytes, from_offset: int, more: int, with_headers: bool
) -> None:
    """All codecs, nulls, headers, times, gaps, log-append time, shapes that repeat, ranges."""
    some = pending(buffer, from_offset)
    expected = rows(plain, some, from_offset + more, with_headers=with_headers)
    assert rows(columnar, some, from_offset + more, with_headers=with_headers) == expected


@settings(max_examples=examples(100), deadline=None)
@given(batches(), st.data())
def test_what_is_malformed_is_refused_by_both(buffer: bytes, data: st.DataObject) -> None:
    """A payload that was changed (and its CRC made to fit) gives the same rows by both ways, or none by either."""
    some = pending(buffer)
    index = data.draw(st.integers(0, len(some) - 1))
    victim = some[index].header
    payload = bytearray(buffer[victim.position + HEADER_BYTES : victim.position + victim.size_bytes])
    kind = data.draw(st.sampled_from(["flip", "cut", "longer", "count"]))
    at = data.draw(st.integers(0, len(payload) - 1))
    if kind == "flip":
        payload[at] ^= data.draw(st.integers(1, 127))
    elif kind == "cut":
        del payload[at:]
    elif kind == "longer":
        payload += b"\x00"
    else:
        victim = victim._replace(record_count=max(0, victim.record_count + data.draw(st.sampled_from([-1, 1]))))
    changed = make_batch(victim, bytes(payload))
    end = some[index].header.position + some[index].header.size_bytes
    spoiled = pending(buffer[: some[index].header.position] + changed + buffer[end:])
    outcomes = []
    for module in (plain, columnar):
        try:
            outcomes.append(rows(module, spoiled, 2**40))
        except BadRecordsError as error:
            outcomes.append([error.batch.base_offset])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("codec", range(5))
def test_long_runs_and_short_ones(codec: int) -> None:
    """Records of one length in hundreds, then others: where a run ends, the next one begins."""
    values = [b"a" * 100] * 700 + [b"b" * 101, b"c", None] * 50 + [b"d" * 5_000] * 300
    records = [(None, value, 5, []) for value in values]
    some = pending(build(records, [1] * len(records), codec, 0))
    assert rows(columnar, some, 900) == rows(plain, some, 900)


def test_no_codec_of_that_number() -> None:
    one = build([(None, b"v", 0, [])], [1], 0, 7)
    first = read_header(one)
    bad = make_batch(first._replace(attributes=6), one[HEADER_BYTES:])
    with pytest.raises(BadRecordsError, match="no compression codec 6"):
        columnar.read_columns(pending(bad), 100, with_headers=False)


def test_a_length_without_end_is_refused() -> None:
    """Eleven continued bytes are no length, whatever follows."""
    one = build([(None, b"v" * 100, 0, [])], [1], 0, 7)
    bad = make_batch(read_header(one), b"\xff" * 11 + b"\x00" * 100)
    with pytest.raises(BadRecordsError, match="more than five bytes"):
        columnar.read_columns(pending(bad), 100, with_headers=False)


def test_without_numpy_the_plain_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pyarrow nor pyspark requires numpy."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    for name in [name for name in sys.modules if name == "tidegauge_spark.columnar"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("tidegauge_spark.columnar", raising=False)
    decoder = ArrowDecoder(TopicPartition("t", 0), 0, 2, Columns(headers=True))
    buffer = build([(b"k", b"v", 0, [("h", None)])] * 2, [1, 1], 0, 0)
    (batch,) = [*decoder.decode(buffer), *decoder.rest()]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": None}]] * 2
    assert batch.column("value").type == pa.binary()
