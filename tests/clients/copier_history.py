"""Common parts of the copiers in Python: the history of a process (docs/histories.md), and its beginning again."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIRST_DESCRIPTOR, LAST_DESCRIPTOR = 3, 65_536


class History:
    """Appends the operations of this process to a file, each in a line before it begins and one after it.

    Args:
        path: the file; none: nothing is written.
        name: begins the name of the process.
    """

    def __init__(self, path: str | None, name: str) -> None:
        self._file = None if path is None else Path(path).open("a", buffering=1)  # noqa: SIM115 - open until the end
        self.process = f"{name}-{os.getpid()}-{time.time_ns()}"
        self._numbers = iter(range(sys.maxsize))
        self._lock = threading.Lock()

    def invoke(self, op: str, **fields: Any) -> int:
        """Note that an operation is about to begin; return its number."""
        with self._lock:
            number = next(self._numbers)
            self._write("invoke", number, op=op, **fields)
            return number

    def end(self, number: int, outcome: str = "ok", **fields: Any) -> None:
        """Note an outcome: ok, fail, or info, where an effect can't be excluded."""
        with self._lock:
            self._write(outcome, number, **fields)

    def noted(self, call: Callable[[], object], op: str, **fields: Any) -> None:
        """Do an operation, with its lines."""
        number = self.invoke(op, **fields)
        try:
            call()
        except BaseException:
            self.end(number, "info")
            raise
        self.end(number)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, kind: str, number: int, **fields: Any) -> None:
        line = {"type": kind, "process": self.process, "number": number, "time_us": time.time_ns() // 1000}
        if self._file is not None:
            self._file.write(json.dumps(line | fields) + "\n")


def begin_as_a_new_process(reason: object) -> None:
    """Run the program again in this process, without its connections, as after SIGKILL."""
    print(f"{reason}: a new process", file=sys.stderr, flush=True)
    os.closerange(FIRST_DESCRIPTOR, LAST_DESCRIPTOR)
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - the same command
