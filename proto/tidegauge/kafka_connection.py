"""The client's end of one connection that speaks Kafka's protocol: requests out, responses back in their order.

Contract: any number of requests may be in flight; the peer responds to them in the order in which they were sent, and a
response whose correlation id differs from the oldest request's ends the connection. The end of a connection fails all
requests in flight with NETWORK_EXCEPTION. A response that is larger than the receive buffer is read straight into a
buffer of its own, so the record batches of a Fetch are views of the bytes that the socket delivered. A logical
clock, if there is one, goes with each request, and is advanced by each response before anything acts on it.
One timer watches the deadlines of all requests in flight, given up by their callers or not: it is set again when it
fires, not with each request.
Source: ``NetworkClient``, ``InFlightRequests``, ``NetworkReceive``.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from typing import Any, NamedTuple, cast

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import ApiCodec, codec_of
from tidegauge.kafka.header_tags import Tags
from tidegauge.logical_clock import LogicalClock

_LENGTH = struct.Struct(">i")
_RECEIVE_BYTES = 65_536
_LAST_CORRELATION_ID = 2**31 - 1


class _InFlight(NamedTuple):
    """A request that has been sent."""

    codec: ApiCodec
    correlation_id: int
    response: asyncio.Future[Any]
    deadline: float


class KafkaConnection(asyncio.BufferedProtocol):
    """The client's end of one connection; the contract is at the head of this file.

    Args:
        client_id: goes with each request.
        logical_clock: the process's; None: it does not travel.
        protocol: the APIs and messages that the peer serves.
    """

    def __init__(
        self, client_id: str, logical_clock: LogicalClock | None = None, protocol: Protocol = BROKER_PROTOCOL
    ) -> None:
        self._client_id = client_id
        self._protocol = protocol
        self._clock = logical_clock
        self._transport: asyncio.WriteTransport | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._correlation_id = 0
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._why_closed: TidegaugeError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused: asyncio.Future[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._why_closed is not None

    def send(
        self, key: int, version: int, message: Any, truncation_rule: str = "", deadline: float = math.inf
    ) -> asyncio.Future[Any]:
        """Send a request; return the future of its response's message.

        Args:
            key: the API's.
            version: of the request.
            message: of the API's request class.
            truncation_rule: goes along as a tag (``header_tags``); empty: it does not.
            deadline: when the future fails with TimeoutError, in seconds of the event loop's clock. The caller must
                close the connection then: a later response would be taken for a later request's.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, the connection is closed. The future may fail with it, too.
        """
        codec = codec_of(key, version, self._protocol)
        correlation_id = self._write(codec, message, truncation_rule)
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._in_flight.append(_InFlight(codec, correlation_id, response, deadline))
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)
        return response

    def send_without_response(self, key: int, version: int, message: Any) -> None:
        """Send a request to which the peer sends no response: a Produce with acks=0.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, the connection is closed.
        """
        self._write(codec_of(key, version, self._protocol), message, "")

    async def drained(self) -> None:
        """Wait until most of the sent bytes have left this process: back-pressure for messages without a response."""
        while self._is_paused is not None:
            await asyncio.shield(self._is_paused)

    def _write(self, codec: ApiCodec, message: Any, truncation_rule: str) -> int:
        """Write a request; return its correlation id."""
        if self._why_closed is not None or self._transport is None:
            raise self._why_closed or TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "the connection is not open yet")
        correlation_id = self._correlation_id
        self._correlation_id = 0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        tags = Tags(0 if self._clock is None else self._clock.value, truncation_rule)
        self._transport.writelines(codec.request_frame(correlation_id, self._client_id, message, tags))
        return correlation_id

    def _watch(self, deadline: float) -> None:
        """Let the timer fire at a deadline, which is the next."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if deadline == math.inf else asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose deadline has passed, and watch the next deadline.

        A request that its caller has given up keeps its deadline: its response would come before all later ones, so a
        peer that never sends it would hold up the connection for good.
        """
        self._timer = None
        now = asyncio.get_running_loop().time()
        late = [one for one in self._in_flight if one.deadline <= now]
        if any(one.response.cancelled() for one in late):
            self._end("a request that was given up has no response in time")
            return
        for one in late:
            if not one.response.done():
                one.response.set_exception(TimeoutError())
        self._watch(min((one.deadline for one in self._in_flight if one.deadline > now), default=math.inf))

    def close(self, why: str = "the connection was closed by this side") -> None:
        """Close the connection at once; requests in flight fail with the reason."""
        self._end(why)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def pause_writing(self) -> None:
        """Let ``drained`` wait: the transport's buffer is full."""
        self._is_paused = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Resume ``drained``."""
        paused, self._is_paused = self._is_paused, None
        if paused is not None and not paused.done():
            paused.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests in flight."""
        self._end(f"the connection broke: {exc}" if exc else "the peer closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes: a large frame's, or the shared."""
        del sizehint
        return self._received[self._filled :] if self._large is None else self._large[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the frames that have become complete."""
        self._filled += nbytes
        try:
            if self._large is None:
                self._take_small()
            elif self._filled == len(self._large):
                frame, self._large, self._filled = self._large, None, 0
                self._take(frame)
        except (MalformedMessage, TidegaugeError) as problem:
            self._end(f"the peer sent no valid response: {problem}")

    def _take_small(self) -> None:
        """Take all whole frames in the receive buffer; begin a buffer of its own for one that does not fit."""
        at, filled = 0, self._filled
        while filled - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received, at)
            if length < 0:
                raise MalformedMessage(f"a frame of {length} bytes")
            end = at + _LENGTH.size + length
            if end <= filled:
                self._take(memoryview(bytes(self._received[at + _LENGTH.size : end])))
                at = end
                continue
            if _LENGTH.size + length > _RECEIVE_BYTES:
                self._large = memoryview(bytearray(length))
                at += _LENGTH.size
                self._large[: filled - at] = self._received[at:filled]
                self._filled = filled - at
                return
            break
        self._received[: filled - at] = bytes(self._received[at:filled])
        self._filled = filled - at

    def _take(self, frame: memoryview) -> None:
        """Resolve the oldest request with its response."""
        if self._why_closed is not None:
            return
        if not self._in_flight:
            raise MalformedMessage("a response that belongs to no request")
        oldest = self._in_flight[0]
        correlation_id, body_at, tags = oldest.codec.read_response_header(frame)
        if correlation_id != oldest.correlation_id:
            raise MalformedMessage(
                f"correlation id {correlation_id} where {oldest.correlation_id} of {oldest.codec.api.name} is due"
            )
        message, _ = oldest.codec.decode_response(frame, body_at)
        self._in_flight.popleft()
        if self._clock is not None and tags.logical_time:
            self._clock.receive(tags.logical_time)
        if not oldest.response.done():
            oldest.response.set_result(message)

    def _end(self, why: str) -> None:
        if self._why_closed is not None:
            return
        self._why_closed = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, why)
        self._watch(math.inf)
        self.resume_writing()
        while self._in_flight:
            response = self._in_flight.popleft().response
            if not response.done():
                response.set_exception(TidegaugeError(ErrorCode.NETWORK_EXCEPTION, why))
                response.exception()  # a caller that was cancelled does not look at it any more
        if self._transport is not None:
            self._transport.abort()
