"""A fetch that is in the core: the future of its response.

A module of its own: a subclass of a class that is written in C cannot be compiled
(docs/adr/0016-a-compiled-broker.md).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidegauge_broker.replica.effect_executor import FetchResults


class ResponseRoom(Protocol):
    """The memory that a fetch response may take."""

    def limit_bytes(self, max_bytes: int, /) -> int:
        """Return how many bytes of records it may hold now, at most ``max_bytes``; negative: none."""
        ...

    def hold(self, size_bytes: int, /) -> None:
        """Count the bytes that have been read for it."""

    def release(self) -> None:
        """Count them no longer."""


class FetchToken(asyncio.Future[FetchResults]):
    """A fetch in the core: the future of its response, and the memory that the response may take.

    Attributes:
        room: None: the request's own limit only.
    """

    room: ResponseRoom | None = None
