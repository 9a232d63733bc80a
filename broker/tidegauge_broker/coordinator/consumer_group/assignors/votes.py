"""The server-side assignors that a group's members ask for, and which of them is chosen.

The one that most ask for is chosen; among equals the first in the order of Kafka's map, which hangs on who spoke last.
Source: ConsumerGroup (maybeUpdateServerAssignors, computePreferredServerAssignor, preferredServerAssignor).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge_broker.coordinator.consumer_group.assignors.java_order import LOAD, JavaMap
from tidegauge_broker.coordinator.consumer_group.assignors.timeline_map import TimelineMap


class AssignorVotes(TimelineMap[int]):
    """Number of members by the assignor that they ask for."""

    def change(self, former: str | None, now: str | None) -> None:
        """Take a member's record; the name goes to the head of its slot if no other member asks for it."""
        if former is not None:
            self._add(former, -1)
        if now is not None:
            self._add(now, 1)

    def _add(self, name: str, difference: int) -> None:
        count = self.get(name, 0) + difference
        if count:
            self[name] = count
        else:
            del self[name]

    def preferred(self) -> str | None:
        """Return the assignor of the group as its records say."""
        return _first_of_most((name, self[name]) for name in self.in_order())

    def preferred_after(self, former: str | None, now: str | None) -> str | None:
        """Return the assignor after a heartbeat of a member.

        Kafka counts in a ``HashMap`` with the entries of its map.
        """
        counts: JavaMap[str, int] = JavaMap(int(len(self) / LOAD + 1)) if self else JavaMap()
        for name in self.in_order():
            counts.put(name, self[name])
        if former is not None and former in counts:
            if counts[former] == 1:
                counts.remove(former)
            else:
                counts.put(former, counts[former] - 1)
        if now is not None:
            counts.put(now, counts.compute_if_absent(now, int) + 1)
        return _first_of_most(counts.items())


def _first_of_most(counts: Iterable[tuple[str, int]]) -> str | None:
    chosen = max(counts, key=lambda one: one[1], default=None)
    return None if chosen is None else chosen[0]
