"""The one clock of a broker process: wall-clock ms that never go back.

The wall clock may be set back while a broker runs; the core must not see that. So it is read once, and the
monotonic clock measures the time since.
"""

from __future__ import annotations

import time


class Clock:
    """Callable: ms since 1970, never less than before."""

    def __init__(self) -> None:
        self._offset_seconds = time.time() - time.monotonic()

    def __call__(self) -> int:
        """Now, in ms since 1970."""
        return int((time.monotonic() + self._offset_seconds) * 1000)

    def microseconds(self) -> int:
        """Now, in microseconds since 1970: the floor of the logical clock."""
        return int((time.monotonic() + self._offset_seconds) * 1_000_000)
