"""The run so far, step by step: what the page's time line goes through, live and in a recording. Pure.

A step is an event as the page lists it (``event_lines``) with ``patch``: what it changed in the view
(``timeline.patches``), and ``mark``: what the time line draws (``election``, ``fault``, ``truncation``, or none).
At most ``STEPS_KEPT`` steps are kept; what older ones did is in ``base``, the view before the first step that is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge_lab.timeline.choice import Event
from tidegauge_lab.timeline.event_lines import event_line, mark_of
from tidegauge_lab.timeline.moment import ClusterMoment
from tidegauge_lab.timeline.patches import Patch, changes, patched

Json = dict[str, Any]
STEPS_KEPT = 50_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run up to a moment.

    Attributes:
        base: the view before the first of the steps.
        steps: oldest first.
        last_number: of the last step; 0 before the first.
    """

    base: Json
    steps: Sequence[Json]
    last_number: int

    def lacks(self, number: int) -> bool:
        """Whether steps are no longer kept that came behind the one of this number."""
        return self.last_number - len(self.steps) > number

    def after(self, number: int) -> Sequence[Json]:
        """Return the steps behind the one of this number."""
        return self.steps[len(self.steps) - (self.last_number - number) :] if number < self.last_number else ()

    def as_json(self) -> Json:
        """Return it in the form that the page is given."""
        return {"base": self.base, "steps": self.steps}


class History:
    """The steps of one cluster.

    Attributes:
        base: the view before the first step that is kept.
        steps: those that are kept, oldest first; their numbers rise by one.
    """

    def __init__(self, steps_kept: int = STEPS_KEPT) -> None:
        self._moment = ClusterMoment()
        self._kept = steps_kept
        self._last_number = 0
        self._view: Json = self._moment.view()
        self.base: Json = self._view
        self.steps: deque[Json] = deque()

    @property
    def view(self) -> Json:
        """The cluster after the last step."""
        return self._view

    def add(self, event: Event) -> None:
        """Take in the next event, in causal order."""
        self._last_number += 1
        patch: Patch = []
        for room, name in sorted(self._moment.apply(event)):
            before, path = (self._view[room], (room, name)) if room else (self._view, (name,))
            entry = self._moment.entry((room, name))
            if entry is None and room:
                patch += [[list(path)]] if name in before else []
            else:
                patch += changes(before.get(name), entry, path)
        self._view = patched(self._view, patch)
        self.steps.append(event_line(self._last_number, event) | {"patch": patch, "mark": mark_of(event)})
        if len(self.steps) > self._kept:
            self.forget()

    def forget(self) -> None:
        """Put what the oldest step did into the base."""
        self.base = patched(self.base, self.steps.popleft()["patch"])

    def recorded(self) -> Recorded:
        """Return the run so far; later steps do not change it."""
        return Recorded(self.base, list(self.steps), self._last_number)


def history_of(events: Iterable[Event], *, since_ms: int | None = None, until_ms: int | None = None) -> History:
    """Return the history of a run from its events, in causal order.

    Args:
        events: all of them, from the start: earlier ones than ``since_ms`` are in the base.
        since_ms: of the first step wanted, ms since 1970.
        until_ms: of the last one.
    """
    history = History()
    for event in events:
        time_ms = event.get("time_ms", 0)
        if until_ms is not None and time_ms > until_ms:
            break
        history.add(event)
        if since_ms is not None and time_ms < since_ms:
            history.forget()
    return history
