"""gRPC's own lines on stderr: handshakes that failed become one sentence of the broker's log each.

gRPC ends a failed TLS handshake by itself, and its only report is a line of its C library on descriptor 2. Where a
broker has a TLS listener, that descriptor becomes a pipe: its lines are logged as ``handshakes`` words them, or passed
on as they are. Python's own stderr and log go to the old descriptor directly, so that nothing of theirs gets lost.
A client that fails repeatedly is logged once in ``LOG_AGAIN_SECONDS``, with the number of failures.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from typing import TextIO

from tidegauge.handshakes import server_reason

LOG = logging.getLogger("tidegauge.broker")
LOG_AGAIN_SECONDS = 10.0
_STDERR = 2


class LoggedReasons:
    """The reasons that were logged already, and when."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def sentence(self, reason: str, now_seconds: float) -> str | None:
        """Return the sentence to log now; None: it was logged recently."""
        last = self._at.get(reason)
        if last is not None and now_seconds - last < LOG_AGAIN_SECONDS:
            self._since[reason] = self._since.get(reason, 0) + 1
            return None
        self._at[reason] = now_seconds
        unsaid = self._since.pop(reason, 0)
        more = f" ({unsaid} more since the last time)" if unsaid else ""
        return f"Failed authentication (SSL handshake failed){more}: {reason}"


def take_over() -> None:
    """Take over descriptor 2 for the rest of the process."""
    kept = os.fdopen(os.dup(_STDERR), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            handler.setStream(kept)
    sys.stderr = kept
    faulthandler.enable(kept)  # a last word of the library itself could stay in the pipe
    threading.Thread(target=_pass_on, args=(reading, kept), name="native-log", daemon=True).start()


def _pass_on(reading: int, kept: TextIO) -> None:
    logged = LoggedReasons()
    with os.fdopen(reading, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            reason = server_reason(line)
            if reason is None:
                kept.write(line)
                kept.flush()
                continue
            sentence = logged.sentence(reason, time.monotonic())
            if sentence is not None:
                LOG.warning("%s", sentence)
