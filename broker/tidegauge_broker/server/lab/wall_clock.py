"""A broker's wall clock while a fault of the clock is in force.

Rules:
    1. A skewed clock runs on as the machine's does, some ms ahead or behind; one that is set does so from that time
       on. A stopped one shows one time.
    2. It never shows a time before 1970: a negative timestamp means that a record has none.
    3. The machine's time is the broker's again when the fault ends, however far that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegauge.faults.model import WantedFault, time_ms


def _machine_ms() -> int:
    return time.time_ns() // 1_000_000


class LabWallClock:
    """A wall clock with the lab's fault.

    Args:
        machine_ms: the machine's clock, in ms since 1970.
    """

    def __init__(self, machine_ms: Callable[[], int] = _machine_ms) -> None:
        self._machine_ms = machine_ms
        self._ahead_ms = 0
        self._stopped_at_ms: int | None = None

    def skew(self, fault: WantedFault) -> None:
        """Show what a fault of the clock says, and no longer what an earlier one said."""
        now_ms = self._machine_ms()
        set_to_ms = time_ms(fault["set_to"])
        self._ahead_ms = (fault["offset_ms"] or 0) if set_to_ms is None else set_to_ms - now_ms
        self._stopped_at_ms = now_ms + self._ahead_ms if fault["frozen"] else None

    def restore(self) -> None:
        """Show the machine's time. Rule 3."""
        self._ahead_ms, self._stopped_at_ms = 0, None

    def shown_ms(self, machine_ms: int) -> int:
        """Return the clock's time at a time of the machine's, in ms."""
        shown_ms = machine_ms + self._ahead_ms if self._stopped_at_ms is None else self._stopped_at_ms
        return max(0, shown_ms)
