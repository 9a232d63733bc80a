"""Merge runs of ``log_end_offset`` and ``high_watermark`` events of a replica so that every line stays true. Pure.

Contract: the output is a sample of the input. Each line has the time, the cause and the ``new`` value of one
change that happened, the last of its run; ``old`` is the first change's, and ``changes`` says how many were
merged (absent for one). Lines come in the order of those changes.

A high watermark never exceeds the log end offset of its replica, and a reader who goes through the lines must see that.
So the log end offset as of the run's last change of the high watermark is a line of its own, before that change; what
the log grew by afterwards is another line, behind it. A run of any length is three lines for each replica at most.

Rules for the caller:
    1. Within a run log end offsets only rise: call ``take`` before a truncation is written.
    2. Events are added in the order in which they happened.

The event log writer merges over a short time, the sequence diagram over as much as fits a picture.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

LOG_END_OFFSET = "log_end_offset"
HIGH_WATERMARK = "high_watermark"
CHANGES = "changes"


# A change as a plain tuple, since a named one takes three times as long to make and there are six a record: its place
# among all that were added, ``new``, cause, wall clock ms, logical time, and how many changes of its run led to it.
_Change = tuple[int, int, str, int, int, int]


class _Run:
    """One kind of one replica: its first event, its last change, and that as of the high watermark's last change."""

    __slots__ = ("first", "last", "seen_by_high_watermark")

    def __init__(self, first: Mapping[str, Any], last: _Change) -> None:
        self.first = first
        self.last = last
        self.seen_by_high_watermark: _Change | None = None


def _change(place: int, event: Mapping[str, Any]) -> _Change:
    time_ms = event.get("time_ms", 0)
    cause, logical_time = str(event.get("cause", "")), event.get("logical_time", time_ms * 1000)
    return (place, event["new"], cause, time_ms, logical_time, event.get(CHANGES, 1))


class MergedOffsets:
    """The runs of several replicas that have not been taken yet; a replica is named by anything hashable."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Hashable, str], _Run] = {}
        self._count = 0

    def __bool__(self) -> bool:
        """Return whether any run can be taken."""
        return bool(self._runs)

    def extend(
        self, replica: Hashable, kind: str, new: int, cause: str, time_ms: int, logical_time: int, changes: int = 1
    ) -> bool:
        """Add a change to the replica's run of this kind.

        Returns:
            False if there is no run yet: then nothing was added, and ``begin`` needs the whole event.
        """
        runs = self._runs
        if kind == HIGH_WATERMARK and (log_end := runs.get((replica, LOG_END_OFFSET))) is not None:
            log_end.seen_by_high_watermark = log_end.last
        run = runs.get((replica, kind))
        if run is None:
            return False
        self._count += 1
        run.last = (self._count, new, cause, time_ms, logical_time, run.last[5] + changes)
        return True

    def begin(self, replica: Hashable, event: Mapping[str, Any]) -> None:
        """Begin a run with an event; ``extend`` has just said that there is none."""
        self._count += 1
        self._runs[replica, event["kind"]] = _Run(event, _change(self._count, event))

    def add(self, replica: Hashable, event: Mapping[str, Any]) -> None:
        """Add an event, which may have been merged before, to its run or as a new one."""
        if not self.extend(replica, event["kind"], *_change(0, event)[1:]):
            self.begin(replica, event)

    def take(self) -> list[dict[str, Any]]:
        """Return and forget the lines, in the order of last changes."""
        lines: list[tuple[int, dict[str, Any]]] = []
        for run in self._runs.values():
            old, before = run.first["old"], 0
            for change in (run.seen_by_high_watermark, run.last):
                if change is None:
                    continue
                place, new, cause, time_ms, logical_time, changes = change
                if changes == before:
                    continue
                line = {**run.first, "time_ms": time_ms, "logical_time": logical_time, "cause": cause}
                line["old"], line["new"] = old, new
                line.pop(CHANGES, None)
                if changes - before > 1:
                    line[CHANGES] = changes - before
                lines.append((place, line))
                old, before = new, changes
        self._runs.clear()
        return [line for _, line in sorted(lines, key=lambda placed: placed[0])]
