"""Reads a cluster's event logs in causal order, and goes on as they grow.

Rules:
    1. Each file is in the order of its process; all are merged by ``tidegauge.event_log.causal_key``.
    2. Writers keep a line back for a moment (``MERGE_MS`` of the broker's writer). So while following, an event is
       given only when one that was read ``PATIENCE_SECONDS`` ago, or earlier, stands at or behind it in the order.
    3. A file that moves away is read to its end before the new one; a half line waits for its end.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tidegauge.event_log import causal_key, read_line

PATIENCE_SECONDS = 0.4
_PATTERN = "*.events.jsonl"
_Key = tuple[int, str, int]


class EventTail:
    """One event log that grows; the part that has moved away comes first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._old_part: Path | None = path.with_name(path.name + ".1")

    def new_events(self) -> Iterator[dict[str, Any]]:
        """Events written since the last call."""
        if self._old_part is not None:
            old, self._old_part = self._old_part, None
            if old.exists():
                with old.open("rb") as file:
                    yield from self._read(file)
                self._rest = b""
        while True:
            if self._file is None:
                try:
                    self._file = self._path.open("rb")
                except FileNotFoundError:
                    return
            yield from self._read(self._file)
            if not self._has_moved(self._file):
                return
            yield from self._read(self._file)  # what came between reading its end and its moving away
            self._file.close()
            self._file, self._rest = None, b""

    def close(self) -> None:
        """Read no more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _has_moved(self, file: BinaryIO) -> bool:
        try:
            return os.stat(self._path).st_ino != os.fstat(file.fileno()).st_ino  # noqa: PTH116 - beside fstat
        except FileNotFoundError:
            return False

    def _read(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        for line in file:
            self._rest += line
            if not self._rest.endswith(b"\n"):
                return
            whole, self._rest = self._rest, b""
            if (event := read_line(whole)) is not None:
                yield event


class Timeline:
    """The event logs of a directory, as one stream."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tails: dict[Path, EventTail] = {}
        self._waiting: list[tuple[_Key, int, dict[str, Any]]] = []
        self._read: list[tuple[float, _Key]] = []
        self._count = 0

    def written(self) -> Iterator[dict[str, Any]]:
        """Return what has been written since the last call, in causal order."""
        for path in sorted(self._directory.glob(_PATTERN)):
            self._tails.setdefault(path, EventTail(path))
        return heapq.merge(*(tail.new_events() for tail in self._tails.values()), key=causal_key)

    def settled(self, now_seconds: float) -> Iterator[dict[str, Any]]:
        """Return what may be reported by now, by a monotonic clock (rule 2)."""
        for event in self.written():
            key = causal_key(event)
            self._count += 1
            heapq.heappush(self._waiting, (key, self._count, event))
            self._read.append((now_seconds, key))
        due = [key for read, key in self._read if read <= now_seconds - PATIENCE_SECONDS]
        if not due:
            return
        self._read = self._read[len(due) :]
        last = max(due)
        while self._waiting and self._waiting[0][0] <= last:
            yield heapq.heappop(self._waiting)[2]

    @property
    def has_unsettled(self) -> bool:
        """Whether events were read that ``settled`` has not given yet."""
        return bool(self._waiting)

    def close(self) -> None:
        """Read no more."""
        for tail in self._tails.values():
            tail.close()
