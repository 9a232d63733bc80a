"""Searches through a log's segments: by time, and for aborted transactions.

Contract: functions of segments in offset order; they raise OSError, and TidegaugeError CORRUPT_MESSAGE where a file
does not hold what its index says.

A search by time is a generator (``Search``), since a segment may have a million batches: it yields None after every
``BATCHES_PER_TURN`` headers, and a question about each batch that it must look into, whose result it is sent. Its
driver may let others run in between; a search ends with a log whose files are truncated, deleted or replaced.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias

from tidegauge_broker.log.records import BatchSearch, SearchBatch, first_record_at, largest_time_in, search_here
from tidegauge_broker.log.segment import NO_TIMESTAMP, BatchSpot, LogSegment
from tidegauge_broker.replica.open_transactions import AbortedTransaction

_MOST_FALSE_TIMES = 16
"""Maximum number of batches that claim a time which none of their records has, before a search gives up.

A producer writes its batches' headers: a search must end soon with any content of them.
"""
BATCHES_PER_TURN = 2_000

Found: TypeAlias = "tuple[int, int] | None"
"""Offset and timestamp (ms) of a record; None: there is none."""
Search: TypeAlias = Generator["BatchSearch | None", object, Found]


def carried_out(search: Search, look: SearchBatch = search_here) -> Found:
    """Carry a search out in one step; ``look`` looks into batches."""
    found: object = None
    try:
        while True:
            question = search.send(found)
            found = None if question is None else look(*question)
    except StopIteration as end:
        result: Found = end.value
        return result


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp_ms: int, log_start_offset: int, upper_bound: int
) -> Search:
    """Find the first record of a time or later (ListOffsets by timestamp; UnifiedLog.fetchOffsetByTimestamp).

    Args:
        segments: all segments.
        timestamp_ms: the time, in ms since 1970.
        log_start_offset: records below do not count.
        upper_bound: exclusive end of what may be found.
    """
    for segment in segments:
        if segment.base_offset >= upper_bound:
            return None
        if segment.largest_timestamp[0] < timestamp_ms:
            continue
        found = yield from _first_in(segment, timestamp_ms, log_start_offset)
        if found is not None:
            return found if found[0] < upper_bound else None
    return None


def with_largest_timestamp(segments: Sequence[LogSegment], log_start_offset: int, upper_bound: int) -> Search:
    """Find the first record with the largest timestamp of the log (ListOffsets' MAX_TIMESTAMP).

    Args:
        segments: all segments.
        log_start_offset: records below do not count.
        upper_bound: exclusive end of what may be found.
    """
    first = max((at for at, one in enumerate(segments) if one.base_offset <= log_start_offset), default=0)
    largest = [(one.largest_timestamp[0], one) for one in segments[first:]]
    if largest and largest[0][1].base_offset < log_start_offset:  # then the index counts records that are deleted
        segment = largest[0][1]
        largest[0] = (yield from _largest_of_records(segment, log_start_offset)), segment
    for _ in range(len(largest) + _MOST_FALSE_TIMES if largest else 0):
        at, (timestamp_ms, segment) = max(enumerate(largest), key=lambda one: one[1][0])
        if timestamp_ms < 0:
            return None
        found = yield from _first_in(segment, timestamp_ms, log_start_offset)
        if found is not None:
            return found if found[0] < upper_bound else None
        # The time index names a batch whose records compaction has removed, as Kafka's does; or a header lies.
        largest[at] = (yield from _largest_of_records(segment, log_start_offset, below_ms=timestamp_ms)), segment
    return None


def _batches(segment: LogSegment, timestamp_ms: int, from_offset: int) -> Generator[BatchSpot | None, None, None]:
    """Yield the batches that may hold a record of a time or later, at or above an offset; None now and then."""
    for number, spot in enumerate(segment.from_time(timestamp_ms, from_offset), 1):
        if spot.max_timestamp_ms >= timestamp_ms and spot.last_offset >= from_offset and spot.has_records:
            yield spot
        if not number % BATCHES_PER_TURN:
            yield None


def _first_in(segment: LogSegment, timestamp_ms: int, from_offset: int) -> Search:
    """Return offset and timestamp of a segment's first matching record.

    Its time is not before, and its offset not below, the given ones.
    """
    for spot in _batches(segment, timestamp_ms, from_offset):
        if spot is None:
            yield None
            continue
        found: Found = yield first_record_at, segment.batch_bytes(spot), timestamp_ms, from_offset  # type: ignore[assignment] # its result
        if found is not None:
            return found
    return None


def _largest_of_records(
    segment: LogSegment, offset: int, *, below_ms: int | None = None
) -> Generator[BatchSearch | None, object, int]:
    """Return the largest timestamp of records from an offset on, or -1.

    Args:
        segment: the segment.
        offset: records below do not count.
        below_ms: only times below this one count; None: all do.
    """
    largest = NO_TIMESTAMP
    for spot in _batches(segment, NO_TIMESTAMP, offset):
        if spot is None:
            yield None
            continue
        if spot.base_offset >= offset:
            time_ms = spot.max_timestamp_ms
        else:
            found: object = yield largest_time_in, segment.batch_bytes(spot), offset, below_ms
            assert isinstance(found, int), "the question's result"
            time_ms = found
        if below_ms is None or time_ms < below_ms:
            largest = max(largest, time_ms)
    return largest


def aborted_transactions(
    segments: Sequence[LogSegment], from_offset: int, size_bytes: int, log_end_offset: int
) -> list[AbortedTransaction]:
    """Find the aborted transactions with data or markers in a range of bytes (LocalLog.addAbortedTransactions).

    As in Kafka more may be listed than the records need, and never less.

    Args:
        segments: those from the one that holds ``from_offset`` on; if it ends below, before a gap that compaction left,
            the read continued in the next.
        from_offset: where the read began.
        size_bytes: how many bytes it gave; those behind a segment's end are of the next segments.
        log_end_offset: the log's end.

    Returns:
        The entries of .txnindex that overlap the range, by marker.
    """
    first: int | None = None
    for at, segment in enumerate(segments):
        start = segment.position_of(from_offset)
        if start is None:
            continue
        first = at if first is None else first
        if size_bytes > segment.size_bytes - start:
            size_bytes -= segment.size_bytes - start
            continue
        end = segment.index.offset_at_or_after(start + size_bytes)
        if end is not None:
            upper_bound = segment.base_offset + end
        else:
            upper_bound = segments[at + 1].base_offset if at + 1 < len(segments) else log_end_offset
        return aborted_between(segments[first:], from_offset, upper_bound)
    return []


def aborted_between(segments: Sequence[LogSegment], from_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Find the aborted transactions that overlap a range of offsets, by marker.

    Args:
        segments: at least those from the one that holds ``from_offset`` on: a marker may lie far behind its data.
        from_offset: where the range begins.
        end_offset: its end (exclusive).
    """
    found: list[AbortedTransaction] = []
    for segment in segments:
        some, is_complete = segment.transaction_index.collect(from_offset, end_offset)
        found += some
        if is_complete:
            break
    return found
