"""One write of a group at a time: requests and timers of a group wait while a change of it is being written.

A consumer group's change is computed on a draft and takes effect when its records are committed. Meanwhile further
decisions about the same group wait at its gate, in order; other groups of the partition are not held up
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class Waiting(NamedTuple):
    """A decision that waits.

    Attributes:
        token: of the request; None: a timer's.
        request: None: a timer's.
    """

    act: Callable[[], None]
    token: object | None = None
    request: object | None = None


class Gates:
    """The gates of the groups of one partition; a group without a write in flight has none."""

    def __init__(self) -> None:
        self._closed: dict[str, deque[Waiting]] = {}

    def is_closed(self, group_id: str) -> bool:
        """Return whether a write of the group is in flight."""
        return group_id in self._closed

    def enter(self, group_id: str, waiting: Waiting) -> None:
        """Run a decision about a group, at once or when the gate opens."""
        queue = self._closed.get(group_id)
        if queue is None:
            waiting.act()
        else:
            queue.append(waiting)

    def close(self, group_id: str) -> None:
        """Let decisions about a group wait from now on."""
        assert group_id not in self._closed, f"two writes of {group_id} at a time"
        self._closed[group_id] = deque()

    def open(self, group_id: str, first: Callable[[], None]) -> None:
        """Run the end of the write and then what waits, in order, until one of the decisions writes again."""
        queue = self._closed.pop(group_id, None) or deque()
        queue.appendleft(Waiting(first))
        while queue:
            queue.popleft().act()
            if group_id in self._closed:
                self._closed[group_id].extendleft(reversed(queue))
                return

    def drop(self, group_id: str) -> list[Waiting]:
        """Forget a group's gate, and return what waits there."""
        return list(self._closed.pop(group_id, ()))

    def drop_all(self) -> list[Waiting]:
        """Forget all gates, and return what waits."""
        return [one for group_id in list(self._closed) for one in self.drop(group_id)]
