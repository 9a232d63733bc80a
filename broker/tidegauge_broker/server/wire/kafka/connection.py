"""One connection of Kafka's protocol: frames in, responses out, in the order of the requests.

Rules (Kafka's SocketServer, RequestChannel and KafkaApis):
    1. A frame of a wrong size (``frame_reader``), an unknown API or version, and a body that cannot be read close the
       connection without a response, with one line in the log. ApiVersions of an unknown version is responded to, in
       version 0 (KIP-511).
    2. A connection's requests are handled one at a time: the next begins when the response before has been handed to
       the socket and the client reads. Only a Produce may begin behind Produces that are appended and wait for their
       acks (one whose transaction is being verified is not appended yet); batches are appended, and responses sent, in
       the order of the requests. Kafka itself waits; a client sees no difference.
       One whose response may be large waits while unwritten responses take too much memory (``counted_responses``), and
       if it is large itself and only reads, while ``MAX_LARGE_READS`` others are handled (Kafka: num.io.threads). A
       waiting request is not decoded: a message takes many times the memory of its frame.
    3. While a request waits for its turn nothing more is read, so a connection holds one read's worth of requests.
    4. With acks=0 there is no response; an error closes the connection, since nothing else could notify the client.
       Any other request that fails unexpectedly is responded to with its error (``failures``).
    5. A large message is decoded, handled and encoded in slices, so that other connections are served meanwhile
       (``turns``, ``portions``).
    6. A client that exceeds a quota has its response at once, and then its connection is muted: it begins no further
       request for a time (``throttling``).
    7. Record batches are copied once between the socket and the log: out of the buffer that all connections read into.
       (A frame larger than a read is gathered in a buffer that grows as bytes come; its first bytes move along.)
       A response's go from the buffer that the log has read to the socket as they are (``os.writev``); only what the
       socket does not take at once is copied, and everything under TLS.
    8. If brokers use the listener among themselves, a request may carry the sender's logical clock: this broker's is
       advanced before the request is handled, and goes along with the response (``tidegauge.kafka.header_tags``).

Hot path: for each request ``buffer_updated``, ``_begin``, the handler and ``_send`` run once, without a task
or a turn of the event loop where nothing has to wait (docs/results/costs.md, CPU of one request).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.host_addresses import peer_host
from tidegauge.kafka.apis import PRODUCE
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import (
    RequestHeader,
    UnsupportedRequest,
    read_request_header,
)
from tidegauge.kafka.header_tags import NO_TAGS, Tags
from tidegauge.kafka.records import Buffer
from tidegauge.principal import ANONYMOUS
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Entry, Gate
from tidegauge_broker.server.service.middleware import Responded
from tidegauge_broker.server.service.pending_responses import PendingResponse, PendingResponses
from tidegauge_broker.server.wire.kafka.callers import calling_broker
from tidegauge_broker.server.wire.kafka.counted_responses import count, encode_with_room
from tidegauge_broker.server.wire.kafka.failed_responses import errors_in
from tidegauge_broker.server.wire.kafka.failures import failure_response, log_failure, measured_name
from tidegauge_broker.server.wire.kafka.frame_reader import FrameReader
from tidegauge_broker.server.wire.kafka.gated_requests import gated
from tidegauge_broker.server.wire.kafka.owner import Owner
from tidegauge_broker.server.wire.kafka.pacing import write_slowly
from tidegauge_broker.server.wire.kafka.portions import in_portions
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Handler
from tidegauge_broker.server.wire.kafka.responses import Encoded, Held, Paced, Pending, Silent, give_up, settled
from tidegauge_broker.server.wire.kafka.slot import Slot
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, Remaining

LOG = logging.getLogger("tidegauge.kafka")
_MAX_PARTS = 1024
"""Maximum number of buffers that one ``writev`` takes (IOV_MAX of Linux)."""
MAX_UNACKED_PRODUCES = 100
"""Maximum number of Produce requests of one connection that wait for their acks at a time."""
_NUMBERS = itertools.count(1)
_CLOSING = (MalformedMessage, UnsupportedRequest, CloseConnection)
"""The problems that close the connection with one line in the log."""
_IS_COROUTINE: dict[type, bool] = {}
"""Whether a response is a coroutine, by its class, of which there are few: cheaper than to ask the ABC each time."""


class KafkaConnection(asyncio.BufferedProtocol):
    """One connection of Kafka's protocol. Every method runs on the event loop."""

    def __init__(self, owner: Owner, now_ms: Callable[[], int]) -> None:
        self._owner = owner
        self._now_ms = now_ms
        self._reader = FrameReader(owner.max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self.peer_host = "?"
        self.caller = Caller("kafka:?", owner.name)
        self._frames = self._reader.frames
        self._slots: deque[Slot] = deque()
        self._entry: Entry | None = None
        self._writable = True
        self._unwritten: list[PendingResponse] = []
        self._pacing: asyncio.Task[None] | None = None
        self._reading = True
        self._handling = False
        self.used_ms = now_ms()

    # The transport's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless the listener has no room."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # So that resume_writing says that everything is written. (With 0 asyncio's TLS pauses on an empty buffer.)
        transport.set_write_buffer_limits(high=1, low=0)
        if transport.get_extra_info("sslcontext") is None and transport.get_extra_info("socket") is not None:
            self._descriptor = transport.get_extra_info("socket").fileno()
        peer = transport.get_extra_info("peername")
        self.peer_host = peer_host(peer)
        tls = transport.get_extra_info("ssl_object")
        principal = self._owner.principal_of(None if tls is None else tls.getpeercert(binary_form=True))
        name = f"kafka:{peer}:{next(_NUMBERS)}"
        self.caller = Caller(name, self._owner.name, host=self.peer_host, principal=principal or ANONYMOUS)
        if not self._owner.opened(self) or principal is None:
            transport.abort()
        elif self._owner.gate is not None and not self._owner.serves_brokers:
            self._enter(self._owner.gate)

    def _enter(self, gate: Gate) -> None:
        """Be one of the connections that the gate can break, unless it must not begin."""
        self._entry = gate.enter(self.caller, self.abort)
        try:
            gate.check(self._entry)
        except CallRefused:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up the requests in flight."""
        del exc
        self._transport = None
        self._stop_pacing()
        self._frames.clear()
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.waits_for is not None:
                slot.waits_for.cancel()
            if slot.pending is not None:
                slot.pending.release()
        self._all_written()
        if self._entry is not None and self._owner.gate is not None:
            self._owner.gate.leave(self._entry)
        self._owner.closed(self)

    def pause_writing(self) -> None:
        """Begin no further request before the client has read its responses."""
        self._writable = False

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        self._writable = True
        self.used_ms = self._now_ms()
        self._all_written()
        self._go_on()

    def _all_written(self) -> None:
        """Count the responses no longer: they are written, or the connection is closed."""
        unwritten, self._unwritten = self._unwritten, []
        for pending in unwritten:
            pending.release()

    def eof_received(self) -> bool:
        """Close: a client that sends no more does not wait for responses either."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are read to."""
        del sizehint
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take in the bytes that were read."""
        self.used_ms = self._now_ms()
        self._reader.take(nbytes)
        self._go_on()

    # Requests

    def _go_on(self) -> None:
        """Begin what may begin, send what may be sent, and read on if nothing waits."""
        if self._handling:
            return  # a handler has completed a response at once; the loop below goes on with it
        self._handling = True
        try:
            frames = self._frames
            while (
                frames
                and self._writable
                and self._transport is not None
                and (not self._slots or self._may_follow(frames[0]))
            ):
                self._begin(frames.popleft())
                self._send()
        finally:
            self._handling = False
        transport = self._transport
        if transport is None:
            return
        problem = self._reader.problem
        if problem is not None and not self._frames and not self._slots:
            self._close(problem)
            return
        wants = not self._frames and problem is None and self._writable
        if wants != self._reading:
            self._reading = wants
            if wants:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _may_follow(self, frame: memoryview) -> bool:
        """Whether a request may begin behind those in flight; rule 2."""
        gate = self._owner.gate
        return (
            (gate is None or gate.is_open)  # behind a gate that delays, requests would not keep their order
            and len(self._slots) < MAX_UNACKED_PRODUCES
            and _is_produce(frame)
            and all(slot.header.key == PRODUCE and (slot.has_appended or slot.parts) for slot in self._slots)
        )

    def _begin(self, frame: memoryview) -> None:
        slot: Slot | None = None
        try:
            header = read_request_header(frame, self._owner.protocol)
            handler = self._owner.handlers.get(header.key)
            if handler is None:
                name = self._owner.protocol.apis[header.key].name
                raise UnsupportedRequest(f"{name} is not served (API key {header.key})")
            if header.tags.logical_time and (clock := self._owner.logical_clock) is not None:
                clock.receive(header.tags.logical_time)
            slot = Slot(header, self._owner.served[header.key], self._owner.protocol_of(header))
            if len(frame) > slot.api.large_from_bytes and slot.codec.version == header.version:
                slot.is_large = True
                handler = in_portions(slot.api.division, handler)
            responses = self._owner.responses if slot.api.is_counted else None
            if responses is not None:
                slot.pending = responses.room_at_once(self.caller.connection, for_records=False)
                if slot.pending is None or (slot.is_large and slot.api.only_reads):
                    self._slots.append(slot)
                    self._respond(slot, self._handle_with_room(handler, frame, slot, responses))
                    return
            message = self._decoded(slot, frame)
            self._slots.append(slot)
            if isinstance(message, Remaining):
                self._respond(slot, self._handle_later(handler, message, slot, len(frame)))
            else:
                self._respond(slot, self._handle(handler, message, slot, len(frame)))
        except _CLOSING as closing:
            self._close(str(closing))
        except Exception as problem:  # noqa: BLE001 - it is logged, and its request responded to
            self._respond_failure(slot, problem)

    def _decoded(self, slot: Slot, frame: memoryview) -> Any:
        """Return a request's message, or the rest of a large one's decoding."""
        body_at = slot.header.body_at
        if slot.codec.version != slot.header.version:
            return None  # the body of an unknown version is not read
        if not slot.is_large:
            return slot.codec.decode_request(frame, body_at)[0]
        return self._owner.turns.run(slot.codec.decode_in_slices(frame, body_at, ITEMS_PER_TURN))

    def _handle(self, handler: Handler, message: Any, slot: Slot, size_bytes: int) -> Any:
        owner, header = self._owner, slot.header
        gate = owner.gate
        if gate is not None and self._entry is None:
            self._name(gate, header.client_id)
        context = slot.context = owner.context(self, header)
        slot.request = message
        quotas = context.quotas
        if gate is None or gate.is_open:
            if quotas is None:
                return handler(message, context)
            return quotas.around(message, size_bytes, lambda: handler(message, context))
        response = gated(
            gate, slot.api, self.caller, message, context, lambda request: handler(request, context), size_bytes
        )
        return response if quotas is None else quotas.around(message, size_bytes, lambda: response)

    def mute(self, header: RequestHeader, milliseconds: int) -> None:
        """Begin no further request for a time: a slot without a response waits behind those that there are (KIP-219).

        Args:
            header: of the request whose client is throttled.
            milliseconds: the time.
        """
        if self._transport is not None:
            muted = Slot(header, self._owner.served[header.key], self._owner.protocol)
            muted.waits_for = asyncio.get_running_loop().call_later(milliseconds / 1000, self._unmute, muted)
            self._slots.append(muted)

    def _unmute(self, muted: Slot) -> None:
        self._slots.remove(muted)
        self._go_on()

    def _name(self, gate: Gate, client_id: str) -> None:
        """Pass the gate with the first request, which says whether a broker or a client sends."""
        broker_id = calling_broker(client_id, serves_controller=self._owner.serves_controller)
        self.caller = replace(self.caller, broker_id=broker_id)
        self._entry = gate.enter(self.caller, self.abort)
        try:
            gate.check(self._entry)
        except CallRefused as refused:
            raise CloseConnection(str(refused)) from None

    async def _handle_later(self, handler: Handler, decoding: Remaining[Any], slot: Slot, size_bytes: int) -> Any:
        """Handle a large request when it is decoded."""
        return await settled(self._handle(handler, await decoding.run(), slot, size_bytes))

    async def _handle_with_room(
        self, handler: Handler, frame: memoryview, slot: Slot, responses: PendingResponses
    ) -> Any:
        """Handle a request when unwritten responses leave room for another; it is decoded then (rule 2)."""
        is_bounded = slot.is_large and slot.api.only_reads
        async with self._owner.turns.large_reads if is_bounded else contextlib.nullcontext():
            slot.pending = await responses.room(self.caller.connection, for_records=False)
            message = self._decoded(slot, frame)
            if isinstance(message, Remaining):
                message = await message.run()
            return await settled(self._handle(handler, message, slot, len(frame)))

    def _respond(self, slot: Slot, response: Any) -> None:
        if isinstance(response, Held):  # a fetch that did not have to wait
            self._complete(slot, response)
        elif isinstance(response, Pending):
            slot.has_appended = True
            self._wait(slot, response.future, response.respond)
        elif _is_coroutine(response):
            self._wait(slot, asyncio.get_running_loop().create_task(response), None)
        else:
            self._complete(slot, response)

    def _complete(self, slot: Slot, response: Any) -> None:
        """Take a response; it is sent when it is the next in order."""
        if isinstance(response, Paced):
            response, slot.bytes_per_second = response
        if isinstance(response, Silent):
            self._slots.remove(slot)
            return
        if isinstance(response, Held):
            slot.pending = response.pending
            response = response.message
        codec = slot.codec
        if isinstance(response, Encoded):
            slot.parts = self._framed(slot, response.body)
        elif slot.api.is_small and not slot.is_large:
            slot.parts = self._framed(slot, codec.encode(response))
        else:
            body = self._owner.turns.run(codec.encode_in_slices(response, ITEMS_PER_TURN))
            if isinstance(body, list):
                slot.parts = self._framed(slot, body)
            else:
                responses, pending = self._owner.responses, slot.pending
                rest = (
                    body.run()
                    if responses is None or pending is None or pending.size_bytes
                    else encode_with_room(body, self._owner.turns, responses, pending)
                )
                encoding = asyncio.get_running_loop().create_task(rest)
                self._wait(slot, encoding, lambda body: Encoded(body, codec.version))
        if self._owner.responses is not None and slot.api.is_counted and slot.pending and slot.parts is not None:
            count(slot.pending, list(slot.parts))
        if slot.began and (responded := self._owner.responded) is not None:
            self._measure(slot, response, responded)

    def _measure(self, slot: Slot, response: Any, responded: Responded) -> None:
        """Report a response once, for metrics and request log; of what the service measures only failures."""
        began, slot.began = slot.began, 0.0
        if slot.has_failed or not slot.api.is_measured_by_service:
            name, errors = slot.api.name, errors_in(response)
            if slot.has_failed:
                name, errors = measured_name(slot), errors or {ErrorCode.UNKNOWN_SERVER_ERROR}
            responded(self.caller, name, (time.monotonic() - began) * 1000, errors)

    def _respond_failure(self, slot: Slot | None, problem: Exception) -> None:
        """Respond to a request that failed with an unexpected exception as Kafka does (``failures``).

        The connection is closed if the request can't be read, if it has no response, or if its response
        fails too.
        """
        if slot is None:
            LOG.error("A request of %s can't be read; its connection is closed", self.peer_host, exc_info=problem)
            self._close(None)
            return
        log_failure(slot, self.peer_host, problem)
        if slot.pending is not None:
            slot.pending.release()
            slot.pending = None
        if self._transport is None:
            return
        was_failed, slot.has_failed = slot.has_failed, True
        slot.bytes_per_second, slot.has_appended = 0, False
        if slot.context is None or was_failed:
            self._close("its request could not be responded to; the log has the failure")
            return
        try:
            response = failure_response(slot, problem)
            if response is None:
                self._close("a Produce request with acks=0 failed; nothing else could notify the client")
            else:
                self._complete(slot, response)
        except Exception as second:  # noqa: BLE001 - it is logged
            self._respond_failure(slot, second)

    def _framed(self, slot: Slot, body: Sequence[Buffer]) -> list[Buffer]:
        """Put the header before a response's body."""
        clock, tags = self._owner.logical_clock, NO_TAGS
        if slot.header.tags.logical_time and clock is not None:
            tags = Tags(clock.value)
        return slot.codec.response_frame(slot.header.correlation_id, body, tags)

    def _wait(self, slot: Slot, future: asyncio.Future[Any], respond: Callable[[Any], Any] | None) -> None:
        slot.waits_for = future
        if future.done():
            self._done(slot, respond, future)
        else:
            future.add_done_callback(partial(self._done, slot, respond))

    def _done(self, slot: Slot, respond: Callable[[Any], Any] | None, future: asyncio.Future[Any]) -> None:
        slot.waits_for = None
        if future.cancelled():
            self._close(None)
            return
        try:
            result = future.result()
            response = result if respond is None else respond(result)
            if self._transport is None:
                give_up(response)
                return
            self._complete(slot, response)
        except _CLOSING as closing:
            self._close(str(closing))
            return
        except Exception as problem:  # noqa: BLE001 - it is logged, and its request responded to
            self._respond_failure(slot, problem)
        if self._transport is None:
            return
        self._send()
        self._go_on()

    # Responses

    def _send(self) -> None:
        """Write the responses that are ready and next in order."""
        slots = self._slots
        ready: list[Buffer] = []
        if slots and slots[0].bytes_per_second and slots[0].parts is not None:
            if self._pacing is None:
                self._pacing = asyncio.get_running_loop().create_task(self._send_slowly(slots[0]))
            return
        while slots and slots[0].parts is not None:
            slot = slots.popleft()
            ready += slot.parts or ()
            if slot.pending is not None:
                self._unwritten.append(slot.pending)
        transport = self._transport
        if not ready or transport is None:
            return
        if not self._handling:  # else the request came in this turn of the loop
            self.used_ms = self._now_ms()
        if self._descriptor < 0 or transport.get_write_buffer_size() or transport.is_closing():
            transport.write(b"".join(ready))
        else:
            self._write_at_once(transport, ready)
        if self._writable and self._unwritten:
            self._all_written()

    async def _send_slowly(self, slot: Slot) -> None:
        """Write the first response at its rate; the others wait behind it."""
        transport = self._transport
        assert transport is not None, "it is cancelled when the connection ends"
        await write_slowly(transport.write, b"".join(slot.parts or ()), slot.bytes_per_second)
        self._pacing = None
        slot.bytes_per_second, slot.parts = 0, [b""]
        self._send()
        self._go_on()

    def _write_at_once(self, transport: asyncio.Transport, parts: list[Buffer]) -> None:
        """Give the socket all that it takes, without a copy; the transport writes the rest when the client reads.

        Very many parts are joined: to hand each to the transport takes longer than to copy them.
        """
        if len(parts) > _MAX_PARTS:
            parts = [b"".join(parts)]
        try:
            written = os.writev(self._descriptor, parts)
        except (BlockingIOError, InterruptedError):
            written = 0
        except OSError:
            written = 0  # the transport meets the same error, and ends the connection
        if written == sum(map(len, parts)):
            return
        for part in parts:
            if written >= len(part):
                written -= len(part)
            else:
                transport.write(memoryview(part)[written:])
                written = 0
                if transport.is_closing():  # the socket is dead: of more writes asyncio would warn in the log
                    return

    # The end

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight and no response waits for the client."""
        return not self._slots and not self._frames and self._writable

    def close(self) -> None:
        """End the connection."""
        self._close(None)

    def abort(self) -> None:
        """End the connection and drop unwritten responses."""
        if self._transport is not None:
            self._transport.abort()

    def _stop_pacing(self) -> None:
        if self._pacing is not None:
            self._pacing.cancel()
            self._pacing = None

    def _close(self, reason: str | None) -> None:
        transport = self._transport
        if transport is None:
            return
        if reason is not None:
            LOG.info("Closing the connection of /%s: %s", self.peer_host, reason)
        self._transport = None
        self._stop_pacing()
        self._frames.clear()
        if self._writable:
            transport.close()
        else:
            transport.abort()


def _is_coroutine(response: Any) -> bool:
    known = _IS_COROUTINE.get(response.__class__)
    if known is None:
        known = _IS_COROUTINE[response.__class__] = asyncio.iscoroutine(response)
    return known


def _is_produce(frame: memoryview) -> bool:
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == PRODUCE
