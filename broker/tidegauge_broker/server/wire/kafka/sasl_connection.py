"""A connection of a listener with SASL: it serves requests only after the client has authenticated itself.

``security.sasl.authenticator`` decides; this sends, waits and closes. A connection of a listener without SASL is no
``SaslConnection``, so its requests cost nothing more.

SaslHandshake and SaslAuthenticate pass the lab's gate, if there is one, as all requests do: they are delayed, held,
lost, or refused with an error as if the credentials were wrong (``gated_sasl``).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from tidegauge.kafka.apis import API_VERSIONS, SASL_HANDSHAKE
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import (
    RequestHeader,
    UnsupportedRequest,
    codec_of,
    joined,
    response_frame,
)
from tidegauge_broker.security.sasl.authenticator import (
    Authenticated,
    Close,
    Effect,
    Failed,
    Mechanisms,
    Refuse,
    Respond,
    RespondVersions,
    SaslAuthenticator,
    SendToken,
)
from tidegauge_broker.server.service.gate import CallRefused, Gate
from tidegauge_broker.server.wire.kafka.callers import calling_broker
from tidegauge_broker.server.wire.kafka.client_software import is_valid
from tidegauge_broker.server.wire.kafka.connection import KafkaConnection
from tidegauge_broker.server.wire.kafka.gated_sasl import gated_sasl, sasl_header_of
from tidegauge_broker.server.wire.kafka.owner import Owner
from tidegauge_broker.server.wire.kafka.responses import Encoded
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.slot import Slot

LOG = logging.getLogger("tidegauge.kafka")
_LENGTH = struct.Struct(">i")


class Sasl(Mechanisms, Protocol):
    """The listener's SASL, for its connections.

    Attributes:
        delay_ms: ``connection.failed.authentication.delay.ms``.
        max_receive_bytes: ``sasl.server.max.receive.size``.
    """

    delay_ms: int
    max_receive_bytes: int


class SaslConnection(KafkaConnection):
    """A connection of a listener with SASL."""

    def __init__(self, owner: Owner, now_ms: Callable[[], int], sasl: Sasl) -> None:
        super().__init__(owner, now_ms)
        self._sasl = sasl
        self._authenticator = SaslAuthenticator(sasl, is_valid)
        self._is_authenticated = False
        self._failure: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._reader.max_bytes = min(owner.max_request_bytes, sasl.max_receive_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the delayed end of a failed authentication too."""
        if self._failure is not None:
            self._failure.cancel()
        super().connection_lost(exc)

    def _begin(self, frame: memoryview) -> None:
        if self._has_failed:
            return  # Kafka mutes the channel: what follows a failure is not read
        if self._is_authenticated:
            now_ms = self._now_ms()
            if _is_handshake(frame) and self._authenticator.begins_again(now_ms):
                self._is_authenticated = False
            elif self._authenticator.has_expired(now_ms):
                self._close("its SASL session has expired, and the client did not authenticate itself again")
                return
            else:
                super()._begin(frame)
                return
        gate, header = self._owner.gate, None
        if gate is not None and not gate.is_open and self._authenticator.expects_request:
            header = sasl_header_of(frame)
        if gate is None or header is None:
            try:
                self._apply(self._authenticator.received(bytes(frame), self._now_ms()))
            except Exception as problem:  # noqa: BLE001 - it is logged
                self._give_up(problem)
        else:
            self._pass(gate, header, bytes(frame))

    def _pass(self, gate: Gate, header: RequestHeader, frame: bytes) -> None:
        """Let a request pass the gate; what comes behind it waits for it."""
        caller = self.caller
        if self._owner.serves_brokers:
            broker_id = calling_broker(header.client_id, serves_controller=self._owner.serves_controller)
            caller = replace(caller, broker_id=broker_id)
        try:
            slot = Slot(header, SERVED[header.key])  # SASL's APIs are the same in both modes
        except UnsupportedRequest as problem:
            self._close(str(problem))
            return
        passing = gated_sasl(gate, header, caller, len(frame), lambda: self._take(frame), self._sasl.enabled)
        slot.waits_for = asyncio.get_running_loop().create_task(passing)
        slot.waits_for.add_done_callback(partial(self._passed, slot))
        self._slots.append(slot)

    def _take(self, frame: bytes) -> list[Effect]:
        return self._authenticator.received(frame, self._now_ms())

    def _passed(self, slot: Slot, passing: asyncio.Future[Any]) -> None:
        problem = None if passing.cancelled() else passing.exception()
        if passing.cancelled() or self._transport is None:
            return
        self._slots.remove(slot)
        if problem is None:
            self._apply(passing.result())
            self._go_on()
        elif isinstance(problem, CallRefused):
            self._close(str(problem))
        else:
            self._give_up(problem)

    def _give_up(self, problem: BaseException) -> None:
        """Close the connection whose authentication failed unexpectedly, as Kafka's Processor does."""
        LOG.error("Authentication with /%s failed; its connection is closed", self.peer_host, exc_info=problem)
        self._close(None)

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Respond(header, message):
                    self._put(joined(response_frame(header.key, header.version, header.correlation_id, message)))
                case RespondVersions(header, message):
                    self._put(self._versions(header, message))
                case SendToken(token):
                    self._put(_LENGTH.pack(len(token)) + token)
                case Authenticated(principal):
                    self.caller = replace(self.caller, principal=principal)
                    self._is_authenticated = True
                    self._reader.max_bytes = self._owner.max_request_bytes
                case Failed(why, response):
                    self._fail(why, response)
                case Close(why):
                    self._close(why)

    def _put(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def _versions(self, header: RequestHeader, message: Any) -> bytes:
        response = self._owner.handlers[API_VERSIONS](message, self._owner.context(self, header))
        assert isinstance(response, Encoded)
        return joined(codec_of(header.key, response.version).response_frame(header.correlation_id, response.body))

    def _fail(self, why: str, response: Respond | Refuse | None) -> None:
        """Read nothing more, and respond and close after the delay, so that guessing passwords takes time."""
        again = "re-" if self._authenticator.is_reauthentication else ""
        LOG.info("Failed %sauthentication with /%s (%s)", again, self.peer_host, why)
        self._has_failed = True
        self._frames.clear()
        if self._transport is not None:
            self._transport.pause_reading()
        frame = b"" if response is None else _frame_of(response)
        later = asyncio.get_running_loop().call_later
        self._failure = later(self._sasl.delay_ms / 1000, self._end, frame)

    def _end(self, frame: bytes) -> None:
        if frame:
            self._put(frame)
        self._close(None)


def _frame_of(response: Respond | Refuse) -> bytes:
    """Return the frame of a failure's response; empty without a place for errors."""
    header = response.header
    if isinstance(response, Respond):
        return joined(response_frame(header.key, header.version, header.correlation_id, response.message))
    try:
        codec = codec_of(header.key, header.version)
        request, _ = codec.decode_request(memoryview(response.frame), header.body_at)
    except (MalformedMessage, UnsupportedRequest):
        return b""
    message = SERVED[header.key].refusal(header.version, request, response.error)
    if message is None:
        return b""
    return joined(codec.response_frame(header.correlation_id, codec.encode(message)))


def _is_handshake(frame: memoryview) -> bool:
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == SASL_HANDSHAKE
