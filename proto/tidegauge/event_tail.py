"""Reads an event log as it grows.

Rules:
    1. A file that moves away is read to its end before the new one.
    2. A half line waits for its end; a line that its writer was killed in is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tidegauge.event_log import read_line


class EventTail:
    """One event log that grows; the part that has moved away comes first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._old_part: Path | None = path.with_name(path.name + ".1")

    def new_events(self) -> Iterator[dict[str, Any]]:
        """Events written since the last call."""
        if self._old_part is not None:
            old, self._old_part = self._old_part, None
            if old.exists():
                with old.open("rb") as file:
                    yield from self._read(file)
                self._rest = b""
        while True:
            if self._file is None:
                try:
                    self._file = self._path.open("rb")
                except FileNotFoundError:
                    return
            yield from self._read(self._file)
            if not self._has_moved(self._file):
                return
            yield from self._read(self._file)  # what came between reading its end and its moving away
            self._file.close()
            self._file, self._rest = None, b""

    def close(self) -> None:
        """Read no more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _has_moved(self, file: BinaryIO) -> bool:
        try:
            return os.stat(self._path).st_ino != os.fstat(file.fileno()).st_ino  # noqa: PTH116 - beside fstat
        except FileNotFoundError:
            return False

    def _read(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        for line in file:
            self._rest += line
            if not self._rest.endswith(b"\n"):
                return
            whole, self._rest = self._rest, b""
            if (event := read_line(whole)) is not None:
                yield event
