"""Envelope (58): a client's request that a broker forwards, with the client's principal and address (KIP-590).

The inner request is handled as if the client had sent it; its whole response goes back inside the Envelope's. An
inner NOT_CONTROLLER becomes the Envelope's own error, by which the broker looks for the active controller again.
Source: ``EnvelopeUtils``, ``RequestChannel.Request.buildResponseSend``, ``DefaultKafkaPrincipalBuilder.deserialize``.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import java_host
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import UnsupportedRequest, codec_of, joined, read_request_header
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.forwarded_principal import decode_principal

LOG = logging.getLogger("tidegauge.controller")
_LENGTH_BYTES = 4
_ADDRESS_BYTES = {4, 16}


def served(handlers: Mapping[int, Served]) -> list[Served]:
    """Return the API; it looks the inner requests' APIs up in the listener's own table."""
    return [Served(apis.ENVELOPE, partial(_handle, handlers))]


def _handle(handlers: Mapping[int, Served], call: Call) -> None:
    message: EnvelopeRequest = call.message
    try:
        inner = _inner_call(handlers, call, message)
    except TidegaugeError as problem:
        call.respond(EnvelopeResponse(error_code=problem.code))
        return
    try:
        handlers[inner.key].handle(inner)
    except Exception:
        LOG.exception("A request that a broker at /%s has forwarded meets a defect", call.host)
        call.respond(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))


def _inner_call(handlers: Mapping[int, Served], call: Call, message: EnvelopeRequest) -> Call:
    """Return the forwarded request.

    Raises:
        TidegaugeError: PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST or UNSUPPORTED_VERSION.
    """
    principal = decode_principal(message.request_principal)
    address = bytes(message.client_host_address)
    if len(address) not in _ADDRESS_BYTES:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "The client's address has neither 4 nor 16 bytes")
    frame = memoryview(bytes(message.request_data))
    try:
        header = read_request_header(frame, KRAFT_PROTOCOL)
        served_api = handlers.get(header.key)
        if served_api is None or not served_api.is_forwarded:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"API key {header.key} can't be forwarded")
        codec = codec_of(header.key, header.version, KRAFT_PROTOCOL)
        request, _ = codec.decode_request(frame, header.body_at)
    except UnsupportedRequest as problem:
        raise TidegaugeError(ErrorCode.UNSUPPORTED_VERSION, str(problem)) from None
    except MalformedMessage as problem:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, str(problem)) from None

    def respond(response: Any) -> None:
        parts = codec.response_frame(header.correlation_id, codec.encode(response))
        call.respond(EnvelopeResponse(response_data=joined(parts)[_LENGTH_BYTES:]))

    def refuse(error: ErrorCode, text: str) -> None:
        if error is ErrorCode.NOT_CONTROLLER:
            call.respond(EnvelopeResponse(error_code=error))
        else:
            respond(served_api.refusal(header.version, request, error, text))

    host = java_host(str(ipaddress.ip_address(address)))
    return Call(header.key, header.version, request, respond, refuse, principal, host, header.client_id or "")
