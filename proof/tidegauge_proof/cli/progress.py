"""One line on a terminal that says how far a long search is, written again and again in the same place.

Off a terminal nothing is written: a log file has no use for it. The line goes to stderr, so that results on stdout can
be redirected meanwhile; it is removed when the search ends.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

INTERVAL_SECONDS = 0.25
CLEAR_LINE = "\r\x1b[K"


class ProgressLine:
    """A context manager; the line is there while its body runs.

    Args:
        text: returns the line's text; called from another thread, and must be quick.
        stream: where the line goes.
    """

    def __init__(self, text: Callable[[], str], stream: TextIO | None = None) -> None:
        self._text = text
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        if self._is_shown:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            self._ended.set()
            self._thread.join()
            self._write(CLEAR_LINE)

    def _run(self) -> None:
        while True:
            line = f"{self._text()}, {time.monotonic() - self._begun:.0f} s; Ctrl-C ends it and prints what was done"
            width = shutil.get_terminal_size().columns
            self._write(CLEAR_LINE + line[: width - 1])
            if self._ended.wait(INTERVAL_SECONDS):
                return

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
