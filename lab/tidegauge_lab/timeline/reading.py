"""Reads a cluster's event logs in causal order, and goes on as they grow.

Rules:
    1. Each file is in the order of its process; all are merged by ``tidegauge.event_log.causal_key``.
    2. Writers keep a line back for a moment (``MERGE_MS`` of the broker's writer). So while following, an event is
       given only when one that was read ``PATIENCE_SECONDS`` ago, or earlier, comes at or behind it in the order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegauge.event_log import causal_key
from tidegauge.event_tail import EventTail

PATIENCE_SECONDS = 0.4
_PATTERN = "*.events.jsonl"
_Key = tuple[int, str, int]


class Timeline:
    """The event logs of a directory, as one stream."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tails: dict[Path, EventTail] = {}
        self._waiting: list[tuple[_Key, int, dict[str, Any]]] = []
        self._read: list[tuple[float, _Key]] = []
        self._count = 0

    def written(self) -> Iterator[dict[str, Any]]:
        """Yield the events written since the last call, in causal order."""
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
