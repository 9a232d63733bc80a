"""The numbers of requests that a rule has meant and affected, over all brokers of the machine, in a file.

The brokers of a lab share a file system. A lock on the file makes each count one step, so that ``count: 1`` affects
one request of the cluster, and the numbers outlive the brokers. Without a file the numbers are this broker's own.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError

_FORM = struct.Struct("<qq")


class Tally:
    """The numbers of one rule.

    Args:
        path: of the file, which the rule's creator creates; None: of this broker alone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._own = (0, 0)

    @property
    def hits(self) -> int:
        """The number of requests that the rule has affected."""
        return (self._own if self._path is None else read(self._path))[1]

    def take(self, is_affected: Callable[[int, int], bool]) -> bool:
        """Count a request; return whether the rule affects it.

        Args:
            is_affected: decides by the number of this request and of the requests affected before it.
        """
        if self._path is None:
            taken, self._own = _taken(self._own, is_affected)
            return taken
        try:
            descriptor = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:  # the rule is being deleted
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            taken, numbers = _taken(_FORM.unpack(os.pread(descriptor, _FORM.size, 0)), is_affected)
            os.pwrite(descriptor, _FORM.pack(*numbers), 0)
        finally:
            os.close(descriptor)
        return taken


def _taken(numbers: tuple[int, ...], is_affected: Callable[[int, int], bool]) -> tuple[bool, tuple[int, int]]:
    seen, met = numbers[0] + 1, numbers[1]
    taken = is_affected(seen, met)
    return taken, (seen, met + taken)


def create(path: Path) -> None:
    """Create the file of a new rule."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(_FORM.pack(0, 0))
    temporary.replace(path)


def require(path: Path) -> None:
    """Refuse a file that cannot hold the numbers of a rule. One that is missing can: its rule is being deleted.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    try:
        read(path)
    except (OSError, ValueError, struct.error) as problem:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{path} has no numbers of a rule: {problem}") from None


def read(path: Path) -> tuple[int, int]:
    """Return the counts of matching and affected requests; 0 after deletion."""
    try:
        seen, met = _FORM.unpack(path.read_bytes()[: _FORM.size])
    except FileNotFoundError:
        return 0, 0
    return seen, met
