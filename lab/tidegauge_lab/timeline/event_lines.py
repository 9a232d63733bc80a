"""An event as the page lists it and as its time line marks it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.event_log import is_harm
from tidegauge_lab.timeline.choice import Event
from tidegauge_lab.timeline.words import subject_of, whole_sentence

Json = dict[str, Any]
_NO_ELECTION = frozenset({"initial", "remove-from-isr"})


def event_line(number: int, event: Mapping[str, Any]) -> Json:
    """Return an event as the page lists it; ``number`` rises."""
    return {
        "number": number,
        "time": event.get("time_ms", 0),
        "source": str(event.get("source", "?")),
        "partition": subject_of(event),
        "kind": str(event.get("kind")),
        "text": whole_sentence(event),
    }


def mark_of(event: Event) -> str:
    """Return the event's mark on the time line: an election, a fault, a truncation."""
    kind = event.get("kind")
    if kind == "controller" and event.get("state") == "elected":
        return "election"
    if kind == "election" and event.get("strategy") not in _NO_ELECTION and event.get("cause") != "TopicDeletion":
        return "election"
    if kind == "truncation":
        return "truncation"
    return "fault" if is_harm(event) else ""
