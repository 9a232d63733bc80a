"""The service's gate before SaslHandshake and SaslAuthenticate: delays, holds, losses and failures.

Rules:
    1. An injected error is the outcome of the authentication: the response has it, and the connection closes after
       ``connection.failed.authentication.delay.ms``, as when credentials are wrong.
    2. Before its effect the request is not looked at; after it, the user has proved itself and does not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegauge.channel_options import LAB_AGENT
from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import RequestHeader, UnsupportedRequest, read_request_header
from tidegauge.kafka.messages.sasl_authenticate import SaslAuthenticateResponse
from tidegauge.kafka.messages.sasl_handshake import SaslHandshakeResponse
from tidegauge_broker.security.sasl.authenticator import Effect, Failed, Respond, in_hash_order
from tidegauge_broker.server.service.admission import INJECTED, through
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import Gate, GatedRequest, InjectedError


def sasl_header_of(frame: memoryview) -> RequestHeader | None:
    """Return the header of a SASL request; None for other or malformed frames."""
    try:
        header = read_request_header(frame)
    except (MalformedMessage, UnsupportedRequest):
        return None
    return header if header.key in {SASL_HANDSHAKE, SASL_AUTHENTICATE} else None


async def gated_sasl(
    gate: Gate,
    header: RequestHeader,
    caller: Caller,
    size_bytes: int,
    take: Callable[[], list[Effect]],
    enabled: Sequence[str],
) -> list[Effect]:
    """Let a request pass the gate, then take it; return the effects.

    Args:
        gate: the service's.
        header: of the request.
        caller: its connection.
        size_bytes: of its frame.
        take: gives it to the authenticator.
        enabled: the listener's mechanisms.

    Raises:
        CallRefused: the connection is to be closed.
    """
    asked = GatedRequest(
        APIS[header.key].name,
        caller,
        client_id=header.client_id,
        is_of_kafka=True,
        is_of_lab=header.client_id == LAB_AGENT,
        size_bytes=size_bytes,
    )

    async def handle() -> list[Effect]:
        return take()

    effects: list[Effect] = await through(gate, asked, _Form(header, enabled), handle)
    return effects


class _Form:
    """The outcome with an error; see the module."""

    def __init__(self, header: RequestHeader, enabled: Sequence[str]) -> None:
        self._header = header
        self._enabled = enabled

    def refusal(self, injected: InjectedError) -> list[Effect]:
        """Return the failure in place of the request."""
        code = ErrorCode.of(injected.error)
        message: Any = SaslAuthenticateResponse(code, f"Authentication failed: {INJECTED}")
        if self._header.key == SASL_HANDSHAKE:
            message = SaslHandshakeResponse(code, in_hash_order(self._enabled))
        return [Failed(f"{INJECTED}: {code.name}", Respond(self._header, message))]

    def with_error(self, response: list[Effect], injected: InjectedError) -> list[Effect]:
        """Return the failure in place of the response; pacing has no effect."""
        return self.refusal(injected) if injected.error else response

    def discard(self, response: list[Effect]) -> None:
        """Release nothing: the effects have not been carried out."""
