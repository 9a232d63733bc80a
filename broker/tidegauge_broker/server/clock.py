"""The clocks of a broker process: its own, which never goes back, and the machine's wall clock.

The wall clock may be set while a broker runs, and a machine that sleeps stops its monotonic clock; the core must see
neither. So its clock starts at the wall clock's time and runs with the monotonic clock. Times that are stored or
compared with stored times - of records, commits, transactions, tokens - are in the wall clock's time, which is read
each time, as Kafka reads Time.SYSTEM.milliseconds().
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegauge.wall_time import WallTime


class Clock:
    """Callable: the broker's own clock, in ms since 1970 when the process began, never less than before.

    Args:
        machine_seconds: the machine's wall clock.
        steady_seconds: a clock that never goes back.

    Attributes:
        wall: how far the wall clock is ahead, as of the last call.
        shown_ms: maps the machine's time to the time that the broker's wall clock shows; the lab sets it.
    """

    def __init__(
        self,
        machine_seconds: Callable[[], float] = time.time,
        steady_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine_seconds = machine_seconds
        self._steady_seconds = steady_seconds
        self._offset_seconds = machine_seconds() - steady_seconds()
        self.wall = WallTime()
        self.shown_ms: Callable[[int], int] | None = None

    def __call__(self) -> int:
        """Return the time of the broker's own clock, in ms.

        ``wall`` then has the wall clock's time at that moment.
        """
        now_ms = int((self._steady_seconds() + self._offset_seconds) * 1000)
        self.wall.ahead_ms = self.wall_ms() - now_ms
        return now_ms

    def wall_ms(self) -> int:
        """Return the time that the broker's wall clock shows, in ms since 1970."""
        machine_ms = self.machine_ms()
        return machine_ms if self.shown_ms is None else self.shown_ms(machine_ms)

    def machine_ms(self) -> int:
        """Return the machine's time, in ms since 1970, unaffected by the lab."""
        return int(self._machine_seconds() * 1000)

    def machine_us(self) -> int:
        """Return the machine's time in µs since 1970: the logical clock's floor."""
        return int(self._machine_seconds() * 1_000_000)
