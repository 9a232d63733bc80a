"""Responses that wait until the records that they depend on are committed (``DeferredEventQueue``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge_broker.server.quorum.calls import Refuse


class _Waiting(NamedTuple):
    """A response that waits for the record at ``offset``."""

    offset: int
    complete: Callable[[], None]
    failed: Refuse


class WaitingResponses:
    """The queue; offsets never fall, since events are decided one after the other."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, complete: Callable[[], None], failed: Refuse) -> None:
        """Call ``complete`` when the record at an offset is committed, or ``failed``."""
        self._waiting.append(_Waiting(offset, complete, failed))

    def committed(self, end_offset: int) -> None:
        """Complete the responses whose records are below an offset."""
        while self._waiting and self._waiting[0].offset < end_offset:
            self._waiting.popleft().complete()

    def fail(self, error: ErrorCode, message: str) -> None:
        """Fail all of them: whether their records will be committed is not known."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.failed(error, message)
