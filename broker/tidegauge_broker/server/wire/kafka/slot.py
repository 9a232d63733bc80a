"""A place in the order of a connection's responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from tidegauge.kafka.frames import RequestHeader
from tidegauge.kafka.records import Buffer
from tidegauge_broker.server.service.pending_responses import PendingResponse
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


class Slot:
    """A request whose response is not sent yet."""

    __slots__ = (
        *("api", "began", "bytes_per_second", "context", "has_appended", "has_failed", "header", "is_large", "parts"),
        *("pending", "request", "waits_for"),
    )

    def __init__(self, header: RequestHeader, api: ServedApi) -> None:
        self.header = header
        self.api = api
        self.began = time.monotonic()
        self.parts: Sequence[Buffer] | None = None
        self.waits_for: asyncio.Future[Any] | asyncio.TimerHandle | None = None
        self.pending: PendingResponse | None = None
        self.bytes_per_second = 0
        """The rate at which the response is sent; 0: at once."""
        self.request: Any = None
        """The decoded message: a response to its failure names what it names."""
        self.context: Context | None = None
        """The context in which it is handled; None: its message is not decoded yet."""
        self.has_failed = False
        """Whether its handler has failed, so that the response is one with an error."""
        self.is_large = False
        """Whether its message has so many bytes that it is decoded and encoded in slices."""
        self.has_appended = False
        """Whether this is a Produce whose batches are appended, so that another may begin behind it."""
