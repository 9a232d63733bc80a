"""Envelope (58): a client's request that a broker forwards, with the client's principal and address (KIP-590).

The inner request is handled as if the client had sent it; its whole response goes back inside the Envelope's. An
inner NOT_CONTROLLER becomes the Envelope's own error, by which the broker looks for the active controller again.
Source: ``EnvelopeUtils``, ``RequestChannel.Request.buildResponseSend``, ``DefaultKafkaPrincipalBuilder.deserialize``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import java_host
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import (
    ApiCodec,
    RequestHeader,
    UnsupportedRequest,
    codec_of,
    joined,
    read_request_header,
)
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tidegauge.kafka.records import Buffer
from tidegauge.principal import Principal
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.forwarded_principal import decode_principal
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, LARGE_FRAME_BYTES, Remaining, Turns

LOG = logging.getLogger("tidegauge.controller")
_LENGTH_BYTES = 4
_ADDRESS_BYTES = {4, 16}


def served(handlers: Mapping[int, Served]) -> list[Served]:
    """Return the API; it finds inner requests' APIs in the listener's table."""
    return [Served(apis.ENVELOPE, Envelopes(handlers).handle)]


class _Inner(NamedTuple):
    """A forwarded request that was not decoded yet."""

    frame: memoryview
    header: RequestHeader
    codec: ApiCodec
    served: Served
    principal: Principal
    host: str


class Envelopes:
    """Handles envelopes; a large inner request is decoded and encoded in several turns of the event loop.

    Args:
        handlers: of the inner requests' APIs, by key.
    """

    def __init__(self, handlers: Mapping[int, Served]) -> None:
        self._handlers = handlers
        self._turns = Turns()
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, call: Call) -> None:
        """Handle the request in an envelope."""
        try:
            inner = self._opened(call.message)
            at, codec = inner.header.body_at, inner.codec
            if len(inner.frame) > LARGE_FRAME_BYTES:
                request = self._turns.run(codec.decode_in_slices(inner.frame, at, ITEMS_PER_TURN))
            else:
                request, _ = codec.decode_request(inner.frame, at)
        except UnsupportedRequest:
            call.respond(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        except MalformedMessage:
            call.respond(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
        except TidegaugeError as problem:
            call.respond(EnvelopeResponse(error_code=problem.code))
        else:
            if isinstance(request, Remaining):
                self._later(call, self._handle_later(call, inner, request))
            else:
                self._handle(call, inner, request, is_large=False)

    def _opened(self, message: EnvelopeRequest) -> _Inner:
        """Return an envelope's content.

        Raises:
            TidegaugeError: PRINCIPAL_DESERIALIZATION_FAILURE or INVALID_REQUEST.
            UnsupportedRequest: no such API or version.
            MalformedMessage: its header cannot be read.
        """
        principal = decode_principal(message.request_principal)
        address = bytes(message.client_host_address)
        if len(address) not in _ADDRESS_BYTES:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "The client's address has neither 4 nor 16 bytes")
        frame = memoryview(bytes(message.request_data))
        header = read_request_header(frame, KRAFT_PROTOCOL)
        served_api = self._handlers.get(header.key)
        if served_api is None or not served_api.is_forwarded:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"API key {header.key} can't be forwarded")
        codec = codec_of(header.key, header.version, KRAFT_PROTOCOL)
        return _Inner(frame, header, codec, served_api, principal, java_host(str(ipaddress.ip_address(address))))

    def _later(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        """Continue in later turns of the event loop."""
        task = asyncio.get_running_loop().create_task(_unless_it_fails(call, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle_later(self, call: Call, inner: _Inner, request: Remaining[Any]) -> None:
        try:
            message = await request.run()
        except MalformedMessage:
            call.respond(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
        else:
            if call.is_open():  # a broker that gave the attempt up sends another one
                self._handle(call, inner, message, is_large=True)

    def _handle(self, call: Call, inner: _Inner, request: Any, *, is_large: bool) -> None:
        """Handle a forwarded request as if its client had sent it."""
        header, codec = inner.header, inner.codec
        loop = asyncio.get_running_loop()

        def respond(response: Any) -> None:
            if is_large:  # it may have been made in a thread
                loop.call_soon_threadsafe(encode, response)
            else:
                encode(response)

        def encode(response: Any) -> None:
            body = self._turns.run(codec.encode_in_slices(response, ITEMS_PER_TURN))
            if isinstance(body, Remaining):
                self._later(call, respond_later(body))
            else:
                enclose(body)

        async def respond_later(body: Remaining[list[Buffer]]) -> None:
            enclose(await body.run())

        def enclose(body: list[Buffer]) -> None:
            parts = codec.response_frame(header.correlation_id, body)
            call.respond(EnvelopeResponse(response_data=joined(parts)[_LENGTH_BYTES:]))

        def refuse(error: ErrorCode, text: str) -> None:
            if error is ErrorCode.NOT_CONTROLLER:
                call.respond(EnvelopeResponse(error_code=error))
            else:
                respond(inner.served.refusal(header.version, request, error, text))

        client_id = header.client_id or ""
        try:
            inner.served.handle(
                Call(
                    header.key,
                    header.version,
                    request,
                    respond,
                    refuse,
                    inner.principal,
                    inner.host,
                    client_id,
                    call.is_open,
                    is_large,
                )
            )
        except Exception as problem:  # noqa: BLE001 - it is logged
            _fail(call, problem)


async def _unless_it_fails(call: Call, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as problem:  # noqa: BLE001 - it is logged
        _fail(call, problem)


def _fail(call: Call, problem: Exception) -> None:
    LOG.error("A request that a broker at /%s has forwarded meets a defect", call.host, exc_info=problem)
    call.respond(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
