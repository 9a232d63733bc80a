"""Deadlines of the group coordinator: sessions, join and sync phases, members that were given an id, expiration runs.

Contract: a timer runs its action once, in the order of deadlines, unless it is cancelled or postponed first. A timer
that is only postponed, as by every heartbeat, costs no heap operation until its first deadline has passed. A turn of
the timers runs those that were due when it began: one that an action starts, even if it is due at once, waits for the
next turn, so that a turn always ends.
Source: Kafka's DelayedOperationPurgatory as GroupCoordinator uses it for heartbeats and rebalances.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidegauge_broker.coordinator.owner import Owner

COMPACTION_MINIMUM = 1000
"""Maximum number of cancelled timers in the heap, beyond the live ones, before it is compacted."""


class Timer:
    """One deadline in ms; ``action`` is None once it has run or was cancelled; ``owner`` is None for a periodic run."""

    __slots__ = ("action", "cause", "deadline_ms", "owner", "queued_ms")

    def __init__(self, deadline_ms: int, cause: str, action: Callable[[], None], owner: Owner | None = None) -> None:
        self.deadline_ms = deadline_ms
        self.queued_ms = deadline_ms
        self.cause = cause
        self.owner = owner
        self.action: Callable[[], None] | None = action


class Expired(NamedTuple):
    """A timer that has been taken out to be run."""

    cause: str
    owner: Owner | None
    action: Callable[[], None]


class Timers:
    """All timers of a coordinator."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Timer]] = []
        self._due: deque[Timer] = deque()
        self._sequence = 0
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def start(self, deadline_ms: int, cause: str, action: Callable[[], None], owner: Owner | None = None) -> Timer:
        """Return a timer for an action; ``cause`` names it in the event log."""
        timer = Timer(deadline_ms, cause, action, owner)
        self._live += 1
        self._push(timer)
        return timer

    def postpone(self, timer: Timer, deadline_ms: int) -> None:
        """Give a live timer another deadline."""
        assert timer.action is not None, "a timer that has run or was cancelled is started again, not postponed"
        timer.deadline_ms = deadline_ms
        if deadline_ms < timer.queued_ms:
            self._push(timer)

    def cancel(self, timer: Timer | None) -> None:
        """Have a timer never run; one that has run, and None, are left alone."""
        if timer is not None and timer.action is not None:
            timer.action = None
            assert self._live > 0, "it was alive"
            self._live -= 1
            if len(self._queue) > 2 * self._live + COMPACTION_MINIMUM:
                self._queue = [entry for entry in self._queue if entry[2].action is not None]
                heapq.heapify(self._queue)

    def cancel_all_of(self, owner: Owner) -> None:
        """Cancel every timer of a group or transactional id."""
        for timer in [*(entry[2] for entry in self._queue), *self._due]:
            if timer.owner == owner:
                self.cancel(timer)

    def begin_turn(self, now_ms: int) -> None:
        """Take the timers whose deadline has passed out of the queue, for ``take_expired`` to return in this turn."""
        queue = self._queue
        while queue and queue[0][0] <= now_ms:
            queued_ms, _, timer = heapq.heappop(queue)
            if timer.action is not None and queued_ms == timer.queued_ms:
                if timer.deadline_ms > now_ms:
                    self._push(timer)
                else:
                    self._due.append(timer)

    def due_owners(self, now_ms: int) -> Iterator[Owner | None]:
        """Yield the owners of the timers that the next turn would look at."""
        queue, following = self._queue, [0]
        while following:
            place = following.pop()
            if place < len(queue) and queue[place][0] <= now_ms:
                yield queue[place][2].owner
                following += (2 * place + 1, 2 * place + 2)  # the children in the heap, which are due later

    def take_expired(self, now_ms: int) -> Expired | None:
        """Return the turn's next timer that was neither cancelled nor postponed, or None."""
        while self._due:
            timer = self._due.popleft()
            action = timer.action
            if action is None:
                continue
            if timer.deadline_ms > now_ms:
                self._push(timer)
                continue
            timer.action = None
            assert self._live > 0, "it was alive"
            self._live -= 1
            return Expired(timer.cause, timer.owner, action)
        return None

    def next_deadline_ms(self) -> int | None:
        """Return a time in ms before which nothing expires, or None.

        A postponed timer counts with its earlier deadline: looking then costs one step without effect.
        """
        for timer in self._due:
            if timer.action is not None:
                return timer.deadline_ms
        queue = self._queue
        while queue and (queue[0][2].action is None or queue[0][0] != queue[0][2].queued_ms):
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def _push(self, timer: Timer) -> None:
        self._sequence += 1
        timer.queued_ms = timer.deadline_ms
        heapq.heappush(self._queue, (timer.deadline_ms, self._sequence, timer))
