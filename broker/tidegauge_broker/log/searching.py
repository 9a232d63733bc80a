"""Searches through a log's segments: by time, and for aborted transactions.

Contract: functions of segments in offset order; they raise OSError, and TidegaugeError CORRUPT_MESSAGE where a file
does not hold what its index says.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge_broker.log.records import Look, first_record_at, largest_time_in, look_here
from tidegauge_broker.log.segment import NO_TIMESTAMP, LogSegment
from tidegauge_broker.replica.open_transactions import AbortedTransaction

_MOST_FALSE_TIMES = 16
"""How many batches may claim a time that none of their records has before a search for the largest one gives up.

A producer writes its batches' headers: a search must end, and soon, whatever they say.
"""


def first_at_or_after(
    segments: Sequence[LogSegment],
    timestamp_ms: int,
    log_start_offset: int,
    upper_bound: int,
    look: Look = look_here,
) -> tuple[int, int] | None:
    """Find the first record of a time or later (ListOffsets by timestamp; UnifiedLog.fetchOffsetByTimestamp).

    Args:
        segments: all segments.
        timestamp_ms: the time, in ms since 1970.
        log_start_offset: records below do not count.
        upper_bound: exclusive end of what may be found.
        look: looks into a batch.

    Returns:
        Its offset and its timestamp in ms; None if there is none.
    """
    for segment in segments:
        if segment.base_offset >= upper_bound:
            return None
        if segment.largest_timestamp[0] < timestamp_ms:
            continue
        found = _first_in(segment, timestamp_ms, log_start_offset, look)
        if found is not None:
            return found if found[0] < upper_bound else None
    return None


def with_largest_timestamp(
    segments: Sequence[LogSegment], log_start_offset: int, upper_bound: int, look: Look = look_here
) -> tuple[int, int] | None:
    """Find the first record with the largest timestamp of the log (ListOffsets' MAX_TIMESTAMP).

    Args:
        segments: all segments.
        log_start_offset: records below do not count.
        upper_bound: exclusive end of what may be found.
        look: looks into a batch.

    Returns:
        Its offset and its timestamp in ms; None if no record has a time, or it is not below the bound.
    """
    first = max((at for at, one in enumerate(segments) if one.base_offset <= log_start_offset), default=0)
    largest = [(_largest_from(one, log_start_offset, look), one) for one in segments[first:]]
    for _ in range(len(largest) + _MOST_FALSE_TIMES if largest else 0):
        at, (timestamp_ms, segment) = max(enumerate(largest), key=lambda one: one[1][0])
        if timestamp_ms < 0:
            return None
        found = _first_in(segment, timestamp_ms, log_start_offset, look)
        if found is not None:
            return found if found[0] < upper_bound else None
        # The time index names a batch whose records compaction has removed, as Kafka's does; or a header lies.
        largest[at] = _largest_of_records(segment, log_start_offset, look, below_ms=timestamp_ms), segment
    return None


def _first_in(segment: LogSegment, timestamp_ms: int, from_offset: int, look: Look) -> tuple[int, int] | None:
    """Return offset and timestamp of a segment's first record of a time or later, at or above an offset."""
    for spot in segment.find_by_time(timestamp_ms, from_offset):
        found: tuple[int, int] | None = look(first_record_at, segment.batch_bytes(spot), timestamp_ms, from_offset)
        if found is not None:
            return found
    return None


def _largest_from(segment: LogSegment, offset: int, look: Look) -> int:
    """Return the largest timestamp of the records at or above an offset, by the segment's indexes if they can say."""
    return segment.largest_timestamp[0] if segment.base_offset >= offset else _largest_of_records(segment, offset, look)


def _largest_of_records(segment: LogSegment, offset: int, look: Look, *, below_ms: int | None = None) -> int:
    """Return the largest timestamp of the records at or above an offset; -1 if none has one.

    Args:
        segment: the segment.
        offset: records below do not count.
        look: looks into a batch.
        below_ms: only times below this one count; None: all do.
    """
    largest = NO_TIMESTAMP
    for spot in segment.find_by_time(NO_TIMESTAMP, offset):
        if spot.base_offset >= offset:
            time_ms = spot.max_timestamp_ms
        else:
            time_ms = look(largest_time_in, segment.batch_bytes(spot), offset, below_ms)
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
            the read went on to the next.
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
        segments: at least those from the one that holds ``from_offset`` on: a marker may stand far behind its data.
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
