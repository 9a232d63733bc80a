"""A request that is in the core: the future of its response.

A module of its own: a subclass of a class that is written in C cannot be compiled
(docs/adr/0016-a-compiled-broker.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from tidegauge_broker.replica.effect_executor import FetchResults
from tidegauge_broker.replica.messages import ProduceResult

Result = TypeVar("Result")


class ResponseRoom(Protocol):
    """The memory that a fetch response may take."""

    def limit_bytes(self, max_bytes: int, /) -> int:
        """Return its current limit of records in bytes; negative: none."""
        ...

    def hold(self, size_bytes: int, /) -> None:
        """Count the bytes that have been read for it."""

    def release(self) -> None:
        """Count them no longer."""


class RequestToken(asyncio.Future[Result]):
    """The future of a response. Cancelling it takes the request out of the purgatory.

    Attributes:
        forget: called with the token when it is cancelled. A callback would take a turn of the event loop for each
            request that is not.
    """

    forget: Callable[[object], None] | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Have the core forget the request, unless its response is there."""
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.forget is not None:
            self.forget(self)
        return is_cancelled


class ProduceToken(RequestToken[Sequence[ProduceResult]]):
    """A produce in the core."""


class FetchToken(RequestToken[FetchResults]):
    """A fetch in the core, and the memory that its response may take.

    Attributes:
        room: None: the request's own limit only.
    """

    room: ResponseRoom | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Have the core forget the fetch, and give up its room."""
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.room is not None:
            self.room.release()
        return is_cancelled
