"""The logical clock that brokers carry on their calls, so that events of several processes have a causal order.

Contract: Lamport's clock with the wall clock as a floor (a hybrid logical clock). Its unit is the microsecond since
1970, so that a value can be read, and stays below 2**53, so that any JSON reader keeps it whole.

Rules:
    1. ``tick`` stamps an event: more than every value before it, and at least the wall clock.
    2. A message carries its sender's ``value``; the receiver takes it in (``receive``) before it acts on the message.
       So what a message causes is stamped later than all that its sender had noted, at any setting of the wall clocks.
    3. Messages by other ways (ZooKeeper, a person at the keyboard) are ordered by the floor: on one machine all
       processes read one clock. For the same reason a restarted process needs no state of its previous incarnation.
    4. A value more than a day ahead of the wall clock is ignored as invalid: a clock that accepted it would never come
       down again, and would soon overflow the 64 bits that a message has for it.

Messages without a value carry 0, which has no effect. Source: Lamport, "Time, Clocks, and the Ordering of Events in a
Distributed System" (1978); Kulkarni et al., "Logical Physical Clocks" (2014).
"""

from __future__ import annotations

from collections.abc import Callable

MOST_AHEAD_US = 86_400 * 1_000_000


class LogicalClock:
    """The logical clock of one process.

    Args:
        now_us: wall clock, microseconds since 1970.

    Attributes:
        value: the latest stamp, or a larger value received since; every message carries it.
    """

    __slots__ = ("_now_us", "value")

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.value = 0

    def tick(self) -> int:
        """Return the stamp of a new event, in microseconds (rule 1)."""
        now_us, value = self._now_us(), self.value + 1
        self.value = value = max(value, now_us)
        return value

    def receive(self, value: int) -> None:
        """Advance the clock to the value that a message carried, unless it is invalid (rules 2 and 4)."""
        if value > self.value and value <= self._now_us() + MOST_AHEAD_US:
            self.value = value
