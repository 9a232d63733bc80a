"""Conditions on what brokers and lab have done: they hold once the event logs of the cluster hold such an event.

Rules:
    1. Events of the past count: one that happened before the wait began is not waited for again. ``since_ms`` bounds
       that.
    2. An event is a broker's if the broker wrote it, or if the lab did it to that broker.
    3. A truncation is one that took records away: a replica that begins its log again at an offset above its end has
       lost none by that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegauge.event_log import broker_of
from tidegauge.event_tail import EventTail
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition

TRUNCATION = "truncation"
_POLL_SECONDS = 0.1
_PATTERN = "*.events.jsonl"
Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EventCondition:
    """An event to wait for.

    Attributes:
        kind: of ``tidegauge.event_log.KINDS``.
        partition: whose; None: of any, or of none.
        broker: whose; None: of any.
        since_ms: the event is not older, in ms since 1970; None: of any time.
        truncates: whether it must have taken records away (rule 3).
    """

    kind: str
    partition: TopicPartition | None = None
    broker: int | None = None
    since_ms: int | None = None
    truncates: bool = False

    @property
    def text(self) -> str:
        """Return the condition in words."""
        what = "truncated" if self.truncates else f"event {self.kind}"
        of = "" if self.partition is None else f" {self.partition}"
        return f"{what}{of}" + ("" if self.broker is None else f" at broker {self.broker}")

    def fits(self, event: Event) -> bool:
        """Whether this is the event."""
        return self._fits_kind(event) and (self.since_ms is None or int(event.get("time_ms", 0)) >= self.since_ms)

    def _fits_kind(self, event: Event) -> bool:
        return (
            event.get("kind") == self.kind
            and (self.partition is None or (event.get("topic"), event.get("partition")) == self.partition)
            and (self.broker is None or broker_of(event) == self.broker)
            and (not self.truncates or int(event.get("new", 0)) < int(event.get("old", 0)))
        )

    def missing(self, last: Event | None) -> str:
        """Return the actual state, by the last event of the kind."""
        none = f"no event log holds such an event of {self.partition or 'the cluster'}"
        if last is None:
            return none
        where = "" if "topic" not in last else f" of {last['topic']}-{last.get('partition')}"
        return f"{none}; the last {self.kind}{where} is of {last.get('source')}"


class EventWatch:
    """Looks through the event logs in a directory, new events each time; ``close`` it."""

    def __init__(self, logs: Path, condition: EventCondition) -> None:
        self._logs = logs
        self._condition = condition
        self._tails: dict[Path, EventTail] = {}
        self._last: Event | None = None
        self.found: Event | None = None

    def look(self) -> str | None:
        """Return the actual state; None if ``found`` has an event that fits."""
        for path in sorted(self._logs.glob(_PATTERN)):
            for event in self._tails.setdefault(path, EventTail(path)).new_events():
                if self.found is None and self._condition.fits(event):
                    self.found = event
                elif event.get("kind") == self._condition.kind:
                    self._last = event
        return None if self.found is not None else self._condition.missing(self._last)

    def close(self) -> None:
        """Read no more."""
        for tail in self._tails.values():
            tail.close()


async def wait_for_event(logs: Path, condition: EventCondition, limit_seconds: float) -> tuple[Event | None, str]:
    """Wait until an event log holds the event.

    Args:
        logs: the cluster's directory of event logs.
        condition: the event.
        limit_seconds: the limit.

    Returns:
        The event, or None and the state instead.
    """
    deadline = time.monotonic() + limit_seconds
    watch = EventWatch(logs, condition)
    try:
        while True:
            problem = await asyncio.to_thread(watch.look)
            if problem is None or time.monotonic() >= deadline:
                return watch.found, problem or ""
            await asyncio.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
    finally:
        watch.close()
