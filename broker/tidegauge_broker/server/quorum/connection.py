"""One connection of the CONTROLLER listener: Kafka's protocol, frames in and responses out.

The rules are in ``listener``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

from tidegauge.errors import ErrorCode
from tidegauge.host_addresses import peer_host
from tidegauge.kafka.apis import API_VERSIONS
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import ApiCodec, RequestHeader, UnsupportedRequest, codec_of, read_request_header
from tidegauge.kafka.kraft.apis import ENVELOPE, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.api_versions import ApiVersionsResponse
from tidegauge.kafka.records import Buffer
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.large_room import LargeRoom
from tidegauge_broker.server.wire.kafka.frame_reader import FrameReader
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, LARGE_FRAME_BYTES, Remaining, Turns

LOG = logging.getLogger("tidegauge.quorum")


class Owner(Protocol):
    """The listener, for its connections."""

    handlers: Mapping[int, Served]
    max_request_bytes: int
    turns: Turns
    large_room: LargeRoom

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client's DER certificate; None closes its connection."""
        ...

    def opened(self, connection: QuorumConnection) -> bool:
        """Count a connection; return whether there is room for it."""
        ...

    def closed(self, connection: QuorumConnection) -> None:
        """Forget a connection."""


class QuorumConnection(asyncio.BufferedProtocol):
    """One connection; see the module."""

    def __init__(self, owner: Owner, seconds: Callable[[], float]) -> None:
        self._owner = owner
        self._seconds = seconds
        self._reader = FrameReader(owner.max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._waits = False
        self._is_writable = True
        self._is_busy = False
        self._is_reading = True
        self._is_in_room = False
        self._task: asyncio.Task[None] | None = None
        self.peer_host = "?"
        self.principal: Principal = ANONYMOUS
        self.used_seconds = seconds()

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its response."""
        return not self._waits

    # The transport's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless the listener has no room."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer_host = peer_host(transport.get_extra_info("peername"))
        tls = transport.get_extra_info("ssl_object")
        principal = self._owner.principal_of(None if tls is None else tls.getpeercert(binary_form=True))
        self.principal = principal or ANONYMOUS
        if not self._owner.opened(self) or principal is None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the requests in flight."""
        del exc
        self._transport = None
        self._leave_room()
        if self._task is not None:
            self._task.cancel()
        self._owner.closed(self)

    def pause_writing(self) -> None:
        """Begin no further request before the client has read its responses."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        self._is_writable = True
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are read to."""
        del sizehint
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take in the bytes that were read."""
        self.used_seconds = self._seconds()
        self._reader.take(nbytes)
        self._go_on()

    # Requests

    def _go_on(self) -> None:
        """Begin the next request if none waits, and read on if there is none."""
        if self._is_busy:
            return  # a handler responds at once; the loop below goes on
        self._is_busy = True
        try:
            while self._reader.frames and not self._waits and self._is_writable and self._transport is not None:
                self._begin(self._reader.frames.popleft())
        finally:
            self._is_busy = False
        transport, problem = self._transport, self._reader.problem
        if transport is None:
            return
        if problem is not None and not self._reader.frames and not self._waits:
            self._refuse(problem)
            return
        wants = not self._reader.frames and problem is None and not self._waits and self._is_writable
        if wants != self._is_reading:
            self._is_reading = wants
            (transport.resume_reading if wants else transport.pause_reading)()

    def _begin(self, frame: memoryview) -> None:
        try:
            header = read_request_header(frame, KRAFT_PROTOCOL)
            served = self._owner.handlers.get(header.key)
            if served is None:
                raise UnsupportedRequest(f"API key {header.key} is not served by controllers")
            version, message = header.version, None
            if header.key == API_VERSIONS and not KRAFT_PROTOCOL.apis[API_VERSIONS].has(header.version):
                version = -1  # the body of an unknown version is not read
            else:
                message = self._decoded(header, frame)
            self._waits = True
            is_large = len(frame) > LARGE_FRAME_BYTES
            if isinstance(message, Remaining) or (is_large and header.key == ENVELOPE):  # with what it holds
                self._later(partial(self._handle_later, served, header, message))
            else:
                served.handle(self._call(served, header, version, message))
        except Exception as problem:  # noqa: BLE001 - it is logged
            self._fail_request(problem)

    def _decoded(self, header: RequestHeader, frame: memoryview) -> Any:
        """Return a request's message, or the rest of a large one's decoding."""
        codec = codec_of(header.key, header.version, KRAFT_PROTOCOL)
        if len(frame) > LARGE_FRAME_BYTES:
            return self._owner.turns.run(codec.decode_in_slices(frame, header.body_at, ITEMS_PER_TURN))
        return codec.decode_request(frame, header.body_at)[0]

    def _later(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Continue the request in later turns of the event loop, if the connection is still there."""
        self._task = asyncio.get_running_loop().create_task(self._unless_it_fails(work))

    async def _unless_it_fails(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as problem:  # noqa: BLE001 - it is logged
            self._fail_request(problem)

    async def _handle_later(self, served: Served, header: RequestHeader, message: Any) -> None:
        await self._owner.large_room.enter()
        self._is_in_room = True
        if self._transport is None:
            self._leave_room()
        else:
            whole = await message.run() if isinstance(message, Remaining) else message
            served.handle(self._call(served, header, header.version, whole, is_large=True))

    def _leave_room(self) -> None:
        if self._is_in_room:
            self._is_in_room = False
            self._owner.large_room.leave()

    def _fail_request(self, problem: Exception) -> None:
        if isinstance(problem, MalformedMessage | UnsupportedRequest):
            self._refuse(str(problem))
        else:
            LOG.error("A request of /%s fails here; its connection is closed", self.peer_host, exc_info=problem)
            self.close()

    def _call(
        self, served: Served, header: RequestHeader, version: int, message: Any, *, is_large: bool = False
    ) -> Call:
        loop = asyncio.get_running_loop() if is_large else None

        def respond(response: Any) -> None:
            if loop is not None:  # the response may have been made in a thread
                loop.call_soon_threadsafe(self._respond, header, response)
            else:
                self._respond(header, response)

        def refuse(error: ErrorCode, text: str) -> None:
            respond(served.refusal(version, message, error, text))

        client_id = header.client_id or ""
        return Call(
            header.key,
            version,
            message,
            respond,
            refuse,
            self.principal,
            self.peer_host,
            client_id,
            lambda: self._transport is not None,
            is_large,
        )

    def _respond(self, header: RequestHeader, response: Any) -> None:
        if self._transport is None:
            return
        version = header.version
        if isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        codec = codec_of(header.key, version, KRAFT_PROTOCOL)
        body = self._owner.turns.run(codec.encode_in_slices(response, ITEMS_PER_TURN))
        if isinstance(body, Remaining):
            self._later(partial(self._write_later, codec, header, body))
        else:
            self._write(codec.response_frame(header.correlation_id, body))

    async def _write_later(self, codec: ApiCodec, header: RequestHeader, body: Remaining[list[Buffer]]) -> None:
        self._write(codec.response_frame(header.correlation_id, await body.run()))

    def _write(self, frame: list[Buffer]) -> None:
        """Write a response, and go on with the next request."""
        self._leave_room()
        if self._transport is not None:
            self._waits = False
            self.used_seconds = self._seconds()
            self._transport.writelines(frame)
            self._go_on()

    def _refuse(self, why: str) -> None:
        LOG.info("Closing the connection of /%s: %s", self.peer_host, why)
        self.close()

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
