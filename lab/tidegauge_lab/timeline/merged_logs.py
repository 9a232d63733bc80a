"""Log files of several processes as one stream of lines, in the order of their times.

Rules:
- A line belongs to its file's latest time stamp: the lines of a traceback stay behind the line that they explain.
- Order is by time, then by file; within a file nothing is ever exchanged.
- Time stamps are the brokers' (``[2026-11-20 12:00:00,123]``, local time) and ZooKeeper's logger's (ISO, ``Z``
  for UTC). A line before the first stamp of its file comes first.
- Following reads appended lines; a half line waits for its end.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[.,](\d{3})\d*(Z?)")
_BLOCK_BYTES = 65536


class LogLine(NamedTuple):
    """One line and whose it is."""

    process: str
    text: str


def time_of(line: str) -> float | None:
    """Return the time at a line's start, in seconds since 1970, if any."""
    found = _STAMP.match(line)
    if found is None:
        return None
    day, clock, milliseconds, utc = found.groups()
    try:
        stamp = datetime.fromisoformat(f"{day}T{clock}.{milliseconds}")
    except ValueError:
        return None
    return (stamp.replace(tzinfo=UTC) if utc else stamp.astimezone()).timestamp()


def merge(files: Mapping[str, Iterable[str]]) -> Iterator[LogLine]:
    """All lines in the order of their times."""
    ordered = [_stamped(place, process, lines) for place, (process, lines) in enumerate(files.items())]
    return (line for _, _, line in heapq.merge(*ordered, key=lambda item: item[:2]))


def _stamped(place: int, process: str, lines: Iterable[str]) -> Iterator[tuple[float, int, LogLine]]:
    latest = 0.0
    for text in lines:
        # A clock that was set back must not tear the file's own order.
        latest = max(latest, time_of(text) or 0.0)
        yield latest, place, LogLine(process, text)


class FollowedFile:
    """A log file that grows; each ``new_lines`` gives the whole lines that came since the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at_bytes = 0
        self._rest = b""

    def new_lines(self) -> Iterator[str]:
        """Yield the complete lines since the last call; new or truncated files are read from the start."""
        try:
            with self._path.open("rb") as file:
                if self._path.stat().st_size < self._at_bytes:
                    self._at_bytes, self._rest = 0, b""
                file.seek(self._at_bytes)
                while block := file.read(_BLOCK_BYTES):
                    self._at_bytes += len(block)
                    *lines, self._rest = (self._rest + block).split(b"\n")
                    for line in lines:
                        yield line.decode("utf-8", errors="replace").rstrip("\r")
        except FileNotFoundError:
            return

    def last_line(self) -> str | None:
        """Return the text after the last line end, if any."""
        return self._rest.decode("utf-8", errors="replace") if self._rest else None
