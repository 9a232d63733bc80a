"""The machine's wall clock beside a clock that never goes back. Pure.

A broker has two times. Its own never goes back: timers, sessions, delays and lags are measured by it. Stored times
and times from outside - timestamps of records, commits and transactions, retention, the times in tokens - are in the
machine's wall-clock time, which may be set, forward or back, while the broker runs. Kafka reads it each time
(Time.SYSTEM.milliseconds()).
"""

from __future__ import annotations


class WallTime:
    """The wall clock's lead over the broker's own clock: the shell sets it at each reading of that clock.

    Attributes:
        ahead_ms: in ms; negative if the wall clock is behind.
    """

    __slots__ = ("ahead_ms",)

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def at(self, now_ms: int) -> int:
        """Return the wall-clock time in ms since 1970 for a broker clock's time."""
        return now_ms + self.ahead_ms
