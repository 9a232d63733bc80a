"""The events of the cluster under rising numbers: the last ones are kept. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

EVENTS_KEPT = 20_000


class Journal:
    """Numbered events; numbers begin at 1.

    Args:
        kept: how many are kept.
    """

    def __init__(self, kept: int = EVENTS_KEPT) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=kept)
        self._last = 0

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take in events, in their order."""
        for event in events:
            self._last += 1
            self._kept.append({"number": self._last, **event})

    def after(self, number: int, limit: int) -> dict[str, Any]:
        """Return the events behind a number, and whether some were dropped."""
        found = [event for event in self._kept if event["number"] > number][:limit]
        first = self._last - len(self._kept) + 1
        return {
            "events": found,
            "next": found[-1]["number"] if found else max(number, 0),
            "dropped": max(0, first - 1 - number),
        }
