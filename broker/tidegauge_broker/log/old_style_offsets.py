"""Version 0 of ListOffsets: where segments begin, by when their files were written last.

Source: ``UnifiedLog.legacyFetchOffsetsBefore``, ``Partition.legacyFetchOffsetsForTimestamp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegauge_broker.log.partition_log import PartitionLog

LATEST = -1
EARLIEST = -2


def old_style_offsets(log: PartitionLog, timestamp_ms: int, count: int, upper_bound: int, now_ms: int) -> list[int]:
    """Return the first offsets of segments last written by a time, newest first.

    Args:
        log: the partition's.
        timestamp_ms: the time; ``LATEST`` for any, ``EARLIEST`` for the first segment alone.
        count: maximum number of offsets, at least 0.
        upper_bound: where the reader's view of the log ends; it stands for everything above it.
        now_ms: when the end of the log was written, if the last segment holds records.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR, a segment's file can't be looked at.
    """
    with log.storage("listing"):
        segments = list(log.segments)
        places = [
            (max(segment.base_offset, log.log_start_offset), segment.path.stat().st_mtime_ns // 1_000_000)
            for segment in segments
        ]
        if segments[-1].size_bytes > 0:
            places.append((log.log_end_offset, now_ms))
    return _bounded(_chosen(places, timestamp_ms, count), upper_bound)


def _chosen(places: Sequence[tuple[int, int]], timestamp_ms: int, count: int) -> list[int]:
    if timestamp_ms == LATEST:
        newest = len(places) - 1
    elif timestamp_ms == EARLIEST:
        newest = 0
    else:
        newest = next((at for at in reversed(range(len(places))) if places[at][1] <= timestamp_ms), -1)
    oldest = max(0, newest + 1 - count)
    return sorted((offset for offset, _ in places[oldest : newest + 1]), reverse=True)


def _bounded(offsets: list[int], upper_bound: int) -> list[int]:
    below = [offset for offset in offsets if offset <= upper_bound]
    return offsets if len(below) == len(offsets) else [upper_bound, *below]
