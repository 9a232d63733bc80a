"""Folds runs of log end offsets and high watermarks, so that a picture of thousands of records can be looked at. Pure.

Rules:
    1. Only ``log_end_offset`` and ``high_watermark`` are folded, and only between two other events and within a window
       of time: the order of everything else, and what the offsets were at it, stays.
    2. Folded rows are a sample of what happened, in which no high watermark exceeds its replica's log end offset
       (``tidegauge.merged_offsets``).
    3. The window is the shortest of 0, 100 ms, 200 ms, 400 ms, ... by which ``GOOD_ROWS`` rows remain, and without an
       end if none does. Few events are therefore shown one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegauge.event_log import MERGEABLE_KINDS
from tidegauge.merged_offsets import MergedOffsets
from tidegauge_lab.timeline.lanes import Step

GOOD_ROWS = 150
FIRST_WINDOW_MS = 100
NO_END_MS = 1 << 62


def folded(steps: Sequence[Step]) -> list[Step]:
    """Return the steps in about ``GOOD_ROWS`` rows (rule 3)."""
    rows, window_ms = list(steps), FIRST_WINDOW_MS
    longest_ms = max((step.event.get("time_ms", 0) for step in steps), default=0) - min(
        (step.event.get("time_ms", 0) for step in steps), default=0
    )
    while len(rows) > GOOD_ROWS and window_ms < NO_END_MS:
        rows = list(_folded_within(steps, window_ms))
        window_ms = window_ms * 2 if window_ms <= longest_ms else NO_END_MS
    return rows


def _folded_within(steps: Sequence[Step], window_ms: int) -> Iterator[Step]:
    merged = MergedOffsets()
    last: dict[tuple[object, ...], Step] = {}
    begin_ms = 0
    for step in steps:
        event = step.event
        time_ms = event.get("time_ms", 0)
        folds = event.get("kind") in MERGEABLE_KINDS and "topic" in event
        if not folds or time_ms - begin_ms >= window_ms:
            yield from (replace(last[_place(line)], event=line) for line in merged.take())
            begin_ms = time_ms
        if folds:
            last[_place(event)] = step
            merged.add(_place(event)[:-1], event)
        else:
            yield step
    yield from (replace(last[_place(line)], event=line) for line in merged.take())


def _place(event: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the replica, and the kind."""
    return event.get("source"), event.get("topic"), event.get("partition"), event.get("kind")
