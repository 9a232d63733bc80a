"""Look again until a condition holds: what the lab waits for lies in other processes, so there is nothing to await.

Every wait has a limit; a verb whose limit is over ends with exit code 124.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegauge.errors import ErrorCode, TidegaugeError

PAUSE_SECONDS = 0.02


class TimeLimitError(TidegaugeError):
    """Raised when a verb's own time limit is over; the condition may still come true."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


def holds_within(
    condition: Callable[[], object], limit_seconds: float, *, pause_seconds: float = PAUSE_SECONDS
) -> bool:
    """Whether the condition became true within the limit. It is looked at once at least."""
    end = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(pause_seconds)
    return True
