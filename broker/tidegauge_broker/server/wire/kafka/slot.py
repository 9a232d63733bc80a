"""A place in the order of a connection's responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from tidegauge.kafka.apis import API_VERSIONS, BROKER_PROTOCOL, Protocol
from tidegauge.kafka.frames import ApiCodec, RequestHeader, codec_of
from tidegauge.kafka.records import Buffer
from tidegauge_broker.server.service.pending_responses import PendingResponse
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


class Slot:
    """A request whose response is not sent yet."""

    __slots__ = (
        *("api", "began", "bytes_per_second", "codec", "context", "has_appended", "has_failed", "header", "is_large"),
        *("parts", "pending", "request", "waits_for"),
    )

    def __init__(self, header: RequestHeader, api: ServedApi, protocol: Protocol = BROKER_PROTOCOL) -> None:
        """Make the slot of a request whose header is read.

        Args:
            header: the header.
            api: the description of its API.
            protocol: the versions that are served.

        Raises:
            UnsupportedRequest: its API has no such version.
        """
        self.header = header
        self.api = api
        self.codec: ApiCodec = codec_of(header.key, _response_version(header, protocol), protocol)
        """The version of the request and of the response: 0 for ApiVersions of an unknown version (KIP-511)."""
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
        """Whether its message is so large that it is decoded and encoded in slices."""
        self.has_appended = False
        """Whether this is a Produce whose batches are appended, so that another may begin behind it."""


def _response_version(header: RequestHeader, protocol: Protocol) -> int:
    is_unknown = header.key == API_VERSIONS and not protocol.apis[API_VERSIONS].has(header.version)
    return 0 if is_unknown else header.version
