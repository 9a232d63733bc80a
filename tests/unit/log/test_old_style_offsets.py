"""Version 0 of ListOffsets: where segments begin, by the times of their files (UnifiedLog.legacyFetchOffsetsBefore)."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge_broker.log.old_style_offsets import EARLIEST, LATEST, old_style_offsets

NOW_MS = 90_000


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """Segments from 0, 10 and 20, written at 1, 2 and 3 s; the log ends at 25 and starts at 3."""
    segments = []
    for base_offset, written_s in ((0, 1), (10, 2), (20, 3)):
        path = tmp_path / str(base_offset)
        path.write_bytes(b"x")
        os.utime(path, (written_s, written_s))
        segments.append(SimpleNamespace(base_offset=base_offset, path=path, size_bytes=1))
    return SimpleNamespace(segments=segments, log_start_offset=3, log_end_offset=25, storage=lambda _: nullcontext())


@pytest.mark.parametrize(
    ("timestamp_ms", "count", "found"),
    [
        (LATEST, 9, [25, 20, 10, 3]),
        (LATEST, 2, [25, 20]),
        (LATEST, 0, []),
        (EARLIEST, 9, [3]),
        (EARLIEST, 0, []),
        (2_000, 9, [10, 3]),
        (2_999, 1, [10]),
        (999, 9, []),
        (NOW_MS, 9, [25, 20, 10, 3]),
    ],
)
def test_offsets_are_those_of_segments_written_by_then(
    log: Any, timestamp_ms: int, count: int, found: list[int]
) -> None:
    assert old_style_offsets(log, timestamp_ms, count, 25, NOW_MS) == found


def test_an_empty_last_segment_has_no_end_of_its_own(log: Any) -> None:
    log.segments[-1].size_bytes = 0
    log.log_end_offset = 20
    assert old_style_offsets(log, LATEST, 9, 20, NOW_MS) == [20, 10, 3]


@pytest.mark.parametrize(
    ("upper_bound", "found"), [(25, [25, 20, 10, 3]), (22, [22, 20, 10, 3]), (20, [20, 20, 10, 3])]
)
def test_the_readers_end_stands_for_all_above_it(log: Any, upper_bound: int, found: list[int]) -> None:
    """Partition.legacyFetchOffsetsForTimestamp: the high watermark before the offsets that are not above it."""
    assert old_style_offsets(log, LATEST, 9, upper_bound, NOW_MS) == found
