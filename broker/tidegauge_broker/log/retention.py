"""The oldest segments of a log that may be deleted (UnifiedLog.deleteOldSegments).

Rules:
    1. A segment may go only if everything in it lies below the high watermark; the look stops at the first that
       must stay. The last segment stays if it is empty.
    2. Below the log start offset: the next segment begins at or below it. This alone holds for every policy.
    3. By size: as long as what remains is at least retention.bytes.
    4. By time: the segment's largest timestamp (the file's time, if no record has one) is older than
       retention.ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegauge_broker.log.log_state import LogSettings
from tidegauge_broker.log.segment import LogSegment

UNLIMITED = -1

_Breach = Callable[[LogSegment, int | None], bool]
"""Whether a segment may be deleted, given the next one's base offset (None for the last)."""


def count_deletable(
    segments: Sequence[LogSegment],
    settings: LogSettings,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """Return the number of the oldest segments that may be deleted.

    Raises:
        OSError: the disk refused.
    """
    rules: list[_Breach] = [lambda _segment, following: following is not None and following <= log_start_offset]
    count = _count(segments, 0, rules[0], log_end_offset, high_watermark)
    if not settings.deletes:
        return count
    if settings.retention_bytes != UNLIMITED:
        count = _count(
            segments, count, _by_size(segments[count:], settings.retention_bytes), log_end_offset, high_watermark
        )
    if settings.retention_ms != UNLIMITED:
        oldest_ms = now_ms - settings.retention_ms
        count = _count(
            segments,
            count,
            lambda segment, _following: segment.retention_ms < oldest_ms,
            log_end_offset,
            high_watermark,
        )
    return count


def _count(
    segments: Sequence[LogSegment], start: int, breaches: _Breach, log_end_offset: int, high_watermark: int
) -> int:
    for at in range(start, len(segments)):
        segment = segments[at]
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        end_offset = log_end_offset if following is None else following
        empty_last = following is None and segment.size_bytes == 0
        if high_watermark < end_offset or empty_last or not breaches(segment, following):
            return at
    assert log_end_offset <= high_watermark, "uncommitted records stay"
    return len(segments)


def _by_size(segments: Sequence[LogSegment], retention_bytes: int) -> _Breach:
    surplus = sum(segment.size_bytes for segment in segments) - retention_bytes

    def breaches(segment: LogSegment, _following: int | None) -> bool:
        nonlocal surplus
        if surplus - segment.size_bytes < 0:
            return False
        surplus -= segment.size_bytes
        return True

    return breaches
