"""Which events of a timeline are wanted, and how a moment is written on the command line. Pure.

Rules:
    1. Several values of one filter widen it, several filters narrow it.
    2. Events of no partition (a broker's start and end, its session, the controller, faults) pass the filters for
       topics and partitions: they are the causes. ``kinds`` leaves them out where they are not wanted.
    3. An event is a broker's when the broker wrote it, or when the lab did it to that broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Event = Mapping[str, Any]

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d{1,6})?)?")


@dataclass(frozen=True, slots=True)
class Choice:
    """Filters; an empty one lets everything pass.

    Attributes:
        topics: names.
        partitions: ``(topic, partition)``; topic None: this partition of any topic.
        brokers: ids.
        kinds: of ``tidegauge.event_log.KINDS``.
        since_ms: first moment wanted, ms since 1970.
        until_ms: last moment wanted.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str | None, int]] = frozenset()
    brokers: frozenset[int] = frozenset()
    kinds: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None

    def wants(self, event: Event) -> bool:
        """Whether an event passes."""
        time_ms = event.get("time_ms", 0)
        return (
            (not self.kinds or event.get("kind") in self.kinds)
            and (not self.brokers or broker_of(event) in self.brokers)
            and self._wants_partition(event)
            and (self.since_ms is None or time_ms >= self.since_ms)
            and (self.until_ms is None or time_ms <= self.until_ms)
        )

    def _wants_partition(self, event: Event) -> bool:
        topic, partition = event.get("topic"), event.get("partition")
        if topic is None:
            return True
        in_topics = not self.topics or topic in self.topics
        in_partitions = not self.partitions or not self.partitions.isdisjoint({(topic, partition), (None, partition)})
        return in_topics and in_partitions


def broker_of(event: Event) -> int | None:
    """Return the broker that wrote an event, or to which the lab did something."""
    source = str(event.get("source", ""))
    if source.startswith("broker-") and source[7:].isdecimal():
        return int(source[7:])
    broker = event.get("broker")
    return broker if isinstance(broker, int) else None


def parse_moment(text: str, now: datetime) -> int:
    """Parse a moment to milliseconds since 1970.

    ``30s`` (also ms, m, h, d) is so long ago; ``12:30`` or ``12:30:15.250`` is today; an ISO date and time may bear a
    zone; a bare number is ms since 1970. Without a zone it is ``now``'s.

    Raises:
        ValueError: it is none of these.
    """
    if text.isdecimal():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        moment = now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
    else:
        hour, _, rest = text.partition(":")
        is_today = _CLOCK.fullmatch(text) is not None
        try:
            moment = datetime.fromisoformat(f"{now.date()}T{int(hour):02d}:{rest}" if is_today else text)
        except ValueError:
            raise ValueError(
                f"{text!r} is no moment; write 30s (ago), 12:30:15 (today), 2026-11-20T12:30:15, or ms since 1970"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=now.tzinfo)
    return round(moment.timestamp() * 1000)
