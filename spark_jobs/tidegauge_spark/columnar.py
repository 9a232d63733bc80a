"""The records of many batches to Arrow columns at once, with numpy and no Python loop over their fields.

Contract: ``read_columns`` gives what ``plain.read_columns`` gives (a property test compares them), or raises
``BadRecordsError``. Steps:

1. Payloads: uncompressed ones stay where they are, the others are decompressed and concatenated.
2. Begin of each record. Records of one length follow each other in even steps: one comparison finds how far a run of
   them goes, because each record's length says where the next begins. Short runs fall back to a tight loop that reads
   the length and nothing else.
3. All fields of all records: a field is one vectorised varint read, from the positions where the field before ended.
   Every record must end where its length says; so no field can reach into another record.
4. Keys, values and headers: one binary array is laid over the payloads, key, gap, value, gap and so on; Arrow takes the
   elements that are wanted.

Source: ``DefaultRecord.readFrom``, ``ByteUtils.readVarint`` (zig-zag).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegauge.record_batch import HEADER_BYTES, LOG_APPEND_TIME_BIT
from tidegauge_spark.pending import (
    HEADER_PAIR,
    HEADERS,
    MAX_MS,
    MICROSECONDS_PER_MS,
    Arrow,
    BadRecordsError,
    PendingBatch,
    RecordColumns,
    inflate,
)

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

LONG_RUN = 256
"""Below this number of records of one length in a row, looking for a run costs more than reading the lengths."""


class _Segment(NamedTuple):
    """Positions of bytes, for many records: a negative size is null."""

    begin: Ints
    size: Ints


class _Header(NamedTuple):
    """The same header of some records: which records, and the positions of its key and value."""

    record: Ints
    key: _Segment
    value: _Segment


class _Payloads(NamedTuple):
    """All payloads as one array of bytes, and the begin and end of each batch's payload in it."""

    data: bytes
    begin: list[int]
    end: list[int]


def _payloads(batches: Sequence[PendingBatch]) -> _Payloads:
    buffer = batches[0].buffer
    if all(batch.buffer is buffer and batch.header.compression == 0 for batch in batches):
        begin = [batch.header.position + HEADER_BYTES for batch in batches]
        return _Payloads(buffer, begin, [batch.header.position + batch.header.size_bytes for batch in batches])
    pieces = [inflate(batch) for batch in batches]
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    return _Payloads(b"".join(pieces), [0, *ends[:-1]], ends)


def _walk(payload: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return where some records begin, and where the last one ends, by reading each one's length."""
    starts: list[int] = []
    add = starts.append
    for _ in range(count):
        add(position)
        size = payload[position]
        position += 1
        shift = 7
        while size >> shift:  # the last byte's uppermost bit: another one follows
            byte = payload[position]
            position += 1
            size += (byte - 1) << shift
            shift += 7
            if shift > 35:
                raise ValueError("a record's length has more than five bytes")
        if size & 1:
            raise ValueError("a record has a negative length")
        position += size >> 1
    return starts, position


def _run_of_records(payload: bytes, data: Bytes, position: int, end: int, most: int) -> tuple[int, int]:
    """Return how many records of one length follow each other (with equal bytes of the length prefix), and that length.

    No field of a record is known here: a run only ends where a length differs.
    """
    stride = _walk(payload, position, 1)[1] - position
    most = min(most, (end - position) // stride)
    if most < LONG_RUN:
        return 0, stride
    prefix_bytes = next(index for index in range(1, stride + 1) if payload[position + index - 1] < 0x80)
    prefix = data[position : position + stride * most].reshape(most, stride)[:, :prefix_bytes]
    same = (prefix == prefix[0]).all(axis=1)
    return most if same.all() else int(same.argmin()), stride


def _starts_of_batch_at(batch: PendingBatch, payloads: _Payloads, data: Bytes, index: int) -> Ints:
    """Return where the records of one batch begin.

    Raises:
        BadRecordsError: the lengths do not lead to the end.
    """
    try:
        return _walk_in_runs(payloads.data, data, payloads.begin[index], payloads.end[index], batch.header.record_count)
    except (ValueError, IndexError) as error:
        raise BadRecordsError(batch.header, str(error)) from None


def _walk_in_runs(payload: bytes, data: Bytes, position: int, end: int, count: int) -> Ints:
    pieces: list[Ints] = []
    step = LONG_RUN
    while count:
        run, stride = _run_of_records(payload, data, position, end, count) if count >= LONG_RUN else (0, 0)
        if run >= LONG_RUN:
            pieces.append(np.arange(run, dtype=np.int64) * stride + position)
            position += run * stride
        else:
            # The more often no run was found, the longer none is looked for.
            run = min(count, step)
            step *= 2
            starts, position = _walk(payload, position, run)
            pieces.append(np.array(starts, np.int64))
        count -= run
    if position != end:
        raise ValueError("the records' lengths do not lead to the end of the batch")
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _starts(batches: Sequence[PendingBatch], payloads: _Payloads, data: Bytes) -> list[Ints]:
    """Return where the records of each batch begin.

    Batches of equal size and count mostly have their records in the same places: that is tried, and compared.

    Raises:
        BadRecordsError: the lengths of a batch's records do not lead to its end.
    """
    shapes: dict[tuple[int, int], list[int]] = {}
    for index, batch in enumerate(batches):
        size = payloads.end[index] - payloads.begin[index]
        shapes.setdefault((batch.header.record_count, size), []).append(index)
    found: list[Ints] = [np.empty(0, np.int64)] * len(batches)
    for (_, size), alike in shapes.items():
        shape = _starts_of_batch_at(batches[alike[0]], payloads, data, alike[0])
        found[alike[0]] = shape
        others = alike[1:]
        begins = [payloads.begin[index] for index in others]
        guess = shape - payloads.begin[alike[0]]
        for index, begin, fits in zip(others, begins, _fits(data, guess, size, begins), strict=True):
            found[index] = guess + begin if fits else _starts_of_batch_at(batches[index], payloads, data, index)
    return found


def _fits(data: Bytes, guess: Ints, size: int, begins: list[int]) -> list[bool]:
    """Return for which batches the records' lengths lead from each of these places to the next, and to the end."""
    if not begins:
        return []
    try:
        length, after = _varints(data, (np.array(begins)[:, None] + guess).ravel())
    except (ValueError, IndexError):
        return [False] * len(begins)
    ends = (after + length).reshape(len(begins), len(guess)) - np.array(begins)[:, None]
    same: list[bool] = (ends == np.append(guess[1:], size)).all(axis=1).tolist()
    return same


def _varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Return zig-zag varints at some positions, and the positions behind them.

    Raises:
        IndexError: one reaches out of the data.
        ValueError: one has more than ten bytes.
    """
    byte = data[at]
    value = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte & 0x80)
    shift = 7
    while more.size:
        if shift > 63:
            raise ValueError("a varint has more than ten bytes")
        byte = data[after[more]]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[(byte & 0x80) != 0]
        shift += 7
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), after


def _headers(data: Bytes, position: Ints, counts: Ints, ends: Ints) -> tuple[list[_Header], Ints]:
    """Yield all headers, one of each record at a time, and return where they end."""
    if (counts < 0).any():
        raise ValueError("a record has a negative number of headers")
    rounds: list[_Header] = []
    left = np.flatnonzero(counts)
    while left.size:
        key_size, key_at = _varints(data, position[left])
        if (key_size < 0).any():
            raise ValueError("a header has no key")
        value_size, value_at = _varints(data, key_at + key_size)
        position[left] = value_at + np.maximum(value_size, 0)
        if (position[left] > ends[left]).any():
            raise ValueError("a header reaches out of its record")
        rounds.append(_Header(left, _Segment(key_at, key_size), _Segment(value_at, value_size)))
        left = left[counts[left] > len(rounds)]
    return rounds, position


def _take(payload: Arrow, *segments: _Segment) -> list[Arrow]:
    """Return the bytes of segments in the order 0[0], 1[0], 0[1], 1[1] ..., as one binary array for each.

    An array is laid over the payload in which the bytes between the segments are elements too.
    """
    count = len(segments[0].begin)
    edges = np.empty((count, 2 * len(segments)), np.int32)
    for index, (begin, size) in enumerate(segments):
        edges[:, 2 * index] = begin
        edges[:, 2 * index + 1] = begin + np.maximum(size, 0)
    elements = max(0, edges.size - 1)
    laid = pa.Array.from_buffers(pa.binary(), elements, [None, pa.py_buffer(edges), payload])
    taken = []
    for index, (_, size) in enumerate(segments):
        is_null = size < 0
        if is_null.all():
            taken.append(pa.nulls(count, pa.binary()))
            continue
        which = np.arange(2 * index, edges.size, 2 * len(segments), dtype=np.int32)
        taken.append(laid.take(pa.array(which, mask=is_null if is_null.any() else None)))
    return taken


def _headers_column(payload: Arrow, rounds: list[_Header], rows: Ints, total: int) -> Arrow:
    """Return lists of pairs for the wanted rows; null where a record has none, as in Spark's Kafka source."""
    if not rounds:
        return pa.nulls(len(rows), HEADERS)
    order = np.argsort(np.concatenate([one.record for one in rounds]), kind="stable")
    records = np.concatenate([one.record for one in rounds])[order]

    def sorted_segment(pick: Callable[[_Header], _Segment]) -> _Segment:
        parts = [pick(one) for one in rounds]
        return _Segment(
            np.concatenate([part.begin for part in parts])[order], np.concatenate([part.size for part in parts])[order]
        )

    keys, values = _take(payload, sorted_segment(lambda one: one.key), sorted_segment(lambda one: one.value))
    counts = np.bincount(records, minlength=total)
    ends = np.cumsum(counts)
    # Strict: a key that is not UTF-8 is rejected, not passed on.
    text = keys.cast(pa.string())
    pairs = pa.StructArray.from_arrays([text, values], fields=list(HEADER_PAIR))
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], ends]).astype(np.int32), mask=np.append(counts == 0, False)), pairs, type=HEADERS
    )
    return lists.take(pa.array(rows))


def read_columns(batches: Sequence[PendingBatch], until_offset: int, *, with_headers: bool) -> RecordColumns:
    """Return the wanted records of some batches: below ``until_offset``, and not below their batch's ``from_offset``.

    Raises:
        BadRecordsError: a batch can't be decompressed, or its records are malformed.
    """
    payloads = _payloads(batches)
    data = np.frombuffer(payloads.data, np.uint8)
    starts = np.concatenate(_starts(batches, payloads, data))
    counts = np.array([batch.header.record_count for batch in batches])
    try:
        return _fields(batches, payloads, data, starts, counts, until_offset, with_headers=with_headers)
    except (ValueError, IndexError) as error:
        # One malformed record spoils the whole vector: it is found batch by batch.
        for batch in batches if len(batches) > 1 else ():
            read_columns([batch], until_offset, with_headers=with_headers)
        raise BadRecordsError(batches[0].header, str(error)) from None


def _fields(
    batches: Sequence[PendingBatch],
    payloads: _Payloads,
    data: Bytes,
    starts: Ints,
    counts: NDArray[np.int64],
    until_offset: int,
    *,
    with_headers: bool,
) -> RecordColumns:
    size, position = _varints(data, starts)
    ends = position + size
    timestamp_delta, position = _varints(data, position + 1)  # one byte of attributes, unused
    offset_delta, position = _varints(data, position)
    key_size, key_at = _varints(data, position)
    value_size, value_at = _varints(data, key_at + np.maximum(key_size, 0))
    header_count, position = _varints(data, value_at + np.maximum(value_size, 0))
    rounds, position = _headers(data, position, header_count, ends)
    if (position != ends).any():
        raise ValueError("a record's fields do not fill its length")

    def of_batch(pick: Callable[[PendingBatch], int]) -> Ints:
        return np.repeat(np.array([pick(batch) for batch in batches], np.int64), counts)

    offsets = offset_delta + of_batch(lambda batch: batch.header.base_offset)
    is_append_time = of_batch(lambda batch: 1 if batch.header.attributes & LOG_APPEND_TIME_BIT else 0)
    timestamps = timestamp_delta + of_batch(lambda batch: batch.header.base_timestamp_ms)
    if is_append_time.any():
        largest = of_batch(lambda batch: batch.header.max_timestamp_ms)
        timestamps = np.where(is_append_time == 1, largest, timestamps)
    rows = np.flatnonzero((offsets >= of_batch(lambda batch: batch.from_offset)) & (offsets < until_offset))
    if (np.abs(timestamps[rows]) > MAX_MS).any():
        raise ValueError("a timestamp is beyond what Spark can hold")
    payload = pa.py_buffer(payloads.data)

    def part(values: Ints) -> Ints:
        return values if len(rows) == len(starts) else values[rows]

    keys, values = _take(payload, _Segment(part(key_at), part(key_size)), _Segment(part(value_at), part(value_size)))
    return RecordColumns(
        keys,
        values,
        pa.array(part(offsets)),
        pa.array(part(timestamps) * MICROSECONDS_PER_MS),
        pa.array(part(is_append_time).astype(np.int32)),
        _headers_column(payload, rounds, rows, len(starts)) if with_headers else None,
        pa.array(part(of_batch(lambda batch: batch.header.leader_epoch)).astype(np.int32)),
        pa.array(part(of_batch(lambda batch: batch.high_watermark))),
    )
