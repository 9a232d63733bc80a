"""A file of JSON objects, one a line, to which the clients of one history append at the same time.

Rules:
    1. A line is in the file before what it announces begins; each is one write to the end of the file.
    2. A line that is incomplete because its writer died is left as it is; the next writer begins on a new line.
    3. The times of one writer never go back, though wall-clock time may be set back.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tidegauge.errors import ErrorCode, TidegaugeError


class AppendedLines:
    """Appends lines to a file; a context manager.

    Args:
        path: the file; it may hold the lines of others already.

    Attributes:
        writer: names this writer; unique over the runs of clients on one machine.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR, the file can't be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise _unwritable(path, problem) from None
        self._wall_minus_monotonic_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        self.writer = f"{os.getpid()}-{self.now_us()}"
        size_bytes = os.fstat(self._descriptor).st_size
        if size_bytes and os.pread(self._descriptor, 1, size_bytes - 1) != b"\n":
            self._write_bytes(b"\n")  # rule 2

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop writing; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def now_us(self) -> int:
        """Return microseconds since 1970 (rule 3)."""
        return time.monotonic_ns() // 1000 + self._wall_minus_monotonic_us

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line; after ``close`` nothing is written."""
        self._write_bytes(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")

    def _write_bytes(self, data: bytes) -> None:
        if self._descriptor < 0:
            return
        try:
            os.write(self._descriptor, data)
        except OSError as problem:
            raise _unwritable(self._path, problem) from None


def _unwritable(path: Path, problem: OSError) -> TidegaugeError:
    return TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"the history {path} can't be written: {problem.strerror}")
