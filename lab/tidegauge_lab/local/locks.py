"""Locks between commands that work on one cluster directory.

Rules:
- ``up`` and ``down`` hold the directory alone; a fault shares it with other faults and holds its process alone, so that
  ``kill 2`` need not wait for a long ``stop 1``.
- The locks are the system's (flock): a command that dies releases them. A removed lock file (``down --purge``) is
  noticed, so that no command holds a lock that others can't see.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.local.waiting import TimeLimitError, holds_within

CLUSTER_LOCK = ".lock"


@contextlib.contextmanager
def hold(path: Path, limit_seconds: float, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock file, made if missing (its directory must exist).

    Raises:
        TidegaugeError: the directory has been removed.
        TimeLimitError: another command held it all the time.
    """
    held: list[int] = []

    def take() -> bool:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"{path.parent} does not exist any more: it was removed"
            ) from None
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                held.append(descriptor)
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
        return False

    if not holds_within(take, limit_seconds):
        raise TimeLimitError(
            f"another tidegauge command has been at work on {path.parent} for {limit_seconds:g} s; "
            "try again when it is done"
        )
    try:
        yield
    finally:
        os.close(held[0])
