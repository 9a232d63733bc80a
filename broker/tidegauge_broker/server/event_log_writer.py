"""Writes a broker's event log (schema: ``tidegauge.event_log``).

Rules:
- High watermark and log end offset change with every batch; such changes of one partition are merged over
  ``MERGE_MS``: a merged line is the last of its changes, with the first one's old value, and no line shows a high
  watermark above the log end offset (``tidegauge.merged_offsets``). Everything else is written at once, after the
  merged changes before it, so that the order of lines is the order of events.
- A file that has reached ``MAX_BYTES`` moves to ``.1``; so a broker keeps at most two files.
- The event log never stops a broker: a failed write is reported once in the broker's log, and events are dropped.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegauge.event_log import MAX_BYTES, MERGEABLE_KINDS
from tidegauge.logical_clock import LogicalClock
from tidegauge.merged_offsets import MergedOffsets
from tidegauge.partition import TopicPartition

LOG = logging.getLogger(__name__)
MERGE_MS = 100
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
"""Made once: ``json.dumps`` with separators makes an encoder for every line."""

Later = Callable[[float, Callable[[], None]], object]


class EventLogWriter:
    """One source's event log.

    Args:
        path: the file; None keeps no event log.
        source: ``broker-N``.
        now_ms: wall clock.
        later: calls a function after some seconds (the event loop's ``call_later``).
        max_bytes: size at which the file moves away.
        logical_clock: the process's; None makes one that no other process advances.
    """

    def __init__(
        self,
        path: Path | None,
        source: str,
        now_ms: Callable[[], int],
        later: Later,
        max_bytes: int = MAX_BYTES,
        logical_clock: LogicalClock | None = None,
    ) -> None:
        self.observer: Callable[[str, str, Mapping[str, Any], TopicPartition | None], None] | None = None
        """Called with every event, even if no file is kept; metrics set it."""
        self._path = path
        self._source = source
        self._now_ms = now_ms
        self._clock = logical_clock or LogicalClock(lambda: now_ms() * 1000)
        self._later = later
        self._max_bytes = max_bytes
        self._sequence = 0
        self._merged = MergedOffsets()
        self._flush_is_due = False
        self._descriptor = -1
        self._size_bytes = 0

    def note(
        self, kind: str, cause: str, fields: Mapping[str, object], topic_partition: TopicPartition | None = None
    ) -> None:
        """Write an event, or keep it for a moment if its kind is merged."""
        if self.observer is not None:
            self.observer(kind, cause, fields, topic_partition)
        if self._path is None:
            return
        time_ms, logical_time = self._now_ms(), self._clock.tick()
        if kind in MERGEABLE_KINDS and topic_partition is not None:
            new = fields["new"]
            assert isinstance(new, int)
            if not self._merged.extend(topic_partition, kind, new, cause, time_ms, logical_time):
                event = self._event(kind, cause, fields, topic_partition, time_ms, logical_time)
                self._merged.begin(topic_partition, event)
                if not self._flush_is_due:
                    self._flush_is_due = True
                    self._later(MERGE_MS / 1000, self._flush_due)
            return
        event = self._event(kind, cause, fields, topic_partition, time_ms, logical_time)
        self._write([*self._merged.take(), event])

    def _event(
        self,
        kind: str,
        cause: str,
        fields: Mapping[str, object],
        topic_partition: TopicPartition | None,
        time_ms: int,
        logical_time: int,
    ) -> dict[str, Any]:
        event: dict[str, Any] = {
            "time_ms": time_ms,
            "logical_time": logical_time,
            "sequence": 0,
            "source": self._source,
            "kind": kind,
            "cause": cause,
        }
        if topic_partition is not None:
            event["topic"], event["partition"] = topic_partition
        event.update(fields)
        return event

    def _flush_due(self) -> None:
        self._flush_is_due = False
        self.flush()

    def flush(self) -> None:
        """Write the changes that are being merged."""
        self._write(self._merged.take())

    def close(self) -> None:
        """Write the rest; later events are dropped."""
        self.flush()
        self._path = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, events: list[dict[str, Any]]) -> None:
        if not events or self._path is None:
            return
        for event in events:
            self._sequence += 1
            event["sequence"] = self._sequence
        data = "".join(_ENCODE(event) + "\n" for event in events).encode()
        try:
            self._open_for(len(data))
            self._size_bytes += os.write(self._descriptor, data)
        except OSError as problem:
            LOG.warning("The event log %s can't be written and ends here: %s", self._path, problem.strerror)
            self._path = None

    def _open_for(self, coming_bytes: int) -> None:
        assert self._path is not None
        if self._descriptor >= 0 and self._size_bytes + coming_bytes > self._max_bytes:
            os.close(self._descriptor)
            self._descriptor = -1
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        if self._descriptor < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size_bytes = os.fstat(self._descriptor).st_size
