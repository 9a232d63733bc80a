"""A connection to a controller's listener with SASL: it serves requests once the client has authenticated itself.

``security.sasl.authenticator`` decides; this sends, waits and closes (at brokers: ``wire.kafka.sasl_connection``).
ApiVersions has the response that it always has; any other request fails the authentication.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from tidegauge.kafka.apis import API_VERSIONS
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import RequestHeader, UnsupportedRequest, codec_of, response_frame
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL, SASL_HANDSHAKE
from tidegauge_broker.security.sasl.authenticator import (
    Authenticated,
    Close,
    Effect,
    Failed,
    Refuse,
    Respond,
    RespondVersions,
    SaslAuthenticator,
    SendToken,
)
from tidegauge_broker.server.quorum.connection import Owner, QuorumConnection
from tidegauge_broker.server.wire.kafka.client_software import is_valid
from tidegauge_broker.server.wire.sasl_listener import SaslListener

LOG = logging.getLogger("tidegauge.quorum")
_LENGTH_BYTES = 4


class QuorumSaslConnection(QuorumConnection):
    """A connection to a controller's listener with SASL.

    Args:
        owner: the listener.
        seconds: the event loop's time.
        sasl: the listener's mechanisms.
        now_ms: the process's clock, by which sessions end.
    """

    def __init__(
        self, owner: Owner, seconds: Callable[[], float], sasl: SaslListener, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(owner, seconds)
        self._sasl = sasl
        self._now_ms = now_ms
        self._authenticator = SaslAuthenticator(sasl, is_valid, KRAFT_PROTOCOL)
        self._is_authenticated = False
        self._failure: asyncio.TimerHandle | None = None
        self._reader.max_bytes = min(owner.max_request_bytes, sasl.max_receive_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the delayed end of a failed authentication too."""
        if self._failure is not None:
            self._failure.cancel()
        super().connection_lost(exc)

    def _begin(self, frame: memoryview) -> None:
        now_ms = self._now_ms()
        if self._is_authenticated:
            is_handshake = len(frame) > 1 and (frame[0] << 8 | frame[1]) == SASL_HANDSHAKE
            if is_handshake and self._authenticator.begins_again(now_ms):
                self._is_authenticated = False
            elif self._authenticator.has_expired(now_ms):
                self._refuse("its SASL session has expired, and the client did not authenticate itself again")
                return
            else:
                super()._begin(frame)
                return
        try:
            self._apply(self._authenticator.received(bytes(frame), now_ms))
        except Exception:
            LOG.exception("The authentication of /%s meets a defect; its connection is closed", self.peer_host)
            self.close()

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Respond(header, message):
                    self._put(_frame(header, message))
                case RespondVersions(header, message):
                    self._respond_versions(header, message)
                case SendToken(token):
                    self._put([len(token).to_bytes(_LENGTH_BYTES, "big"), token])
                case Authenticated(principal):
                    self.principal = principal
                    self._is_authenticated = True
                    self._reader.max_bytes = self._owner.max_request_bytes
                case Failed(why, response):
                    self._fail(why, response)
                case Close(why):
                    self._refuse(why)

    def _put(self, frame: Sequence[Any]) -> None:
        if self._transport is not None:
            self._transport.writelines(frame)

    def _respond_versions(self, header: RequestHeader, message: Any) -> None:
        served = self._owner.handlers[API_VERSIONS]
        self._waits = True
        served.handle(self._call(served, header, -1 if message is None else header.version, message))

    def _fail(self, why: str, response: Respond | Refuse | None) -> None:
        """Read nothing more, and respond and close after the delay, so that guessing passwords takes time."""
        again = "re-" if self._authenticator.is_reauthentication else ""
        LOG.info("Failed %sauthentication with /%s (%s)", again, self.peer_host, why)
        self._waits = True
        frame = [] if response is None else self._failure_frame(response)
        self._failure = asyncio.get_running_loop().call_later(self._sasl.delay_ms / 1000, self._end, frame)

    def _failure_frame(self, response: Respond | Refuse) -> Sequence[Any]:
        header = response.header
        if isinstance(response, Respond):
            return _frame(header, response.message)
        served = self._owner.handlers.get(header.key)
        try:
            codec = codec_of(header.key, header.version, KRAFT_PROTOCOL)
            request, _ = codec.decode_request(memoryview(response.frame), header.body_at)
        except (MalformedMessage, UnsupportedRequest):
            return []
        message = None if served is None else served.refusal(header.version, request, response.error, "")
        return [] if message is None else codec.response_frame(header.correlation_id, codec.encode(message))

    def _end(self, frame: Sequence[Any]) -> None:
        if self._transport is not None:
            self._transport.writelines(frame)
            self._transport.close()


def _frame(header: RequestHeader, message: Any) -> Sequence[Any]:
    return response_frame(header.key, header.version, header.correlation_id, message)
