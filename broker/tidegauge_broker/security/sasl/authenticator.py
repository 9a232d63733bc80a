"""The states of a connection that authenticates itself: a frame in, effects out. Pure; times are arguments.

Rules (Kafka's SaslServerAuthenticator, KafkaChannel and Selector):
    1. First ApiVersions, at most once, with the response that it always has, then SaslHandshake, then the mechanism's
       tokens; any other API fails the authentication. After SaslHandshake version 0 the tokens are frames without
       Kafka's headers, from version 1 on SaslAuthenticate carries them.
    2. A failed authentication is a response with its error (33 for a mechanism, 34 for an API out of turn, 58 for
       credentials) and the end of the connection, both delayed by ``connection.failed.authentication.delay.ms``.
       A frame that is no request ends the connection at once, without a response.
    3. A session lasts until the credential expires or for ``connections.max.reauth.ms``, whichever is shorter
       (KIP-368). SaslHandshake begins another, at most once a second, by the same mechanism and for the same principal;
       any other request after its end closes the connection.
    4. A refusal never shows a client whether the user exists.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from tidegauge.errors import ErrorCode
from tidegauge.groups import java_hash
from tidegauge.kafka.apis import API_VERSIONS, BROKER_PROTOCOL, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidegauge.kafka.apis import Protocol as KafkaProtocol
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.frames import RequestHeader, UnsupportedRequest, decode, read_request_header
from tidegauge.kafka.messages.sasl_authenticate import SaslAuthenticateResponse
from tidegauge.kafka.messages.sasl_handshake import SaslHandshakeResponse
from tidegauge.principal import USER, Principal
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused, Exchange, InvalidCredentials

REAUTHENTICATION_INTERVAL_MS = 1_000
"""A connection may begin a re-authentication once in this time (KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS)."""


class Respond(NamedTuple):
    """Send a response to a request of Kafka's protocol."""

    header: RequestHeader
    message: Any


class RespondVersions(NamedTuple):
    """Respond to ApiVersions as after the authentication; ``message`` is None where its version is not known."""

    header: RequestHeader
    message: Any


class SendToken(NamedTuple):
    """Send a token of the mechanism as a frame without Kafka's headers."""

    token: bytes


class Authenticated(NamedTuple):
    """The connection acts for a principal from now on.

    Attributes:
        principal: which.
        mechanism: by which it authenticated itself.
        ends_ms: when the session ends, in epoch ms; None: never.
    """

    principal: Principal
    mechanism: str
    ends_ms: int | None


class Failed(NamedTuple):
    """The authentication has failed: send the response, if there is one, and close, both after the delay.

    Attributes:
        why: for the broker's log.
        response: what the client still gets.
    """

    why: str
    response: Respond | Refuse | None


class Refuse(NamedTuple):
    """The response with one error throughout to a request that is not allowed now."""

    header: RequestHeader
    frame: bytes
    error: ErrorCode


class Close(NamedTuple):
    """Close at once, without a response."""

    why: str


Effect: TypeAlias = Respond | RespondVersions | SendToken | Authenticated | Failed | Close


class Mechanisms(Protocol):
    """The mechanisms of a listener."""

    @property
    def enabled(self) -> Sequence[str]:
        """Their names."""
        ...

    def exchange(self, mechanism: str) -> Exchange:
        """Begin an authentication by an enabled mechanism."""
        ...

    def max_reauth_ms(self, mechanism: str) -> int:
        """Return ``connections.max.reauth.ms`` of a mechanism; 0: sessions have no limit of their own."""
        ...


class State(enum.Enum):
    """The states of Kafka's SaslServerAuthenticator, by its names."""

    INITIAL_REQUEST = enum.auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = enum.auto()
    HANDSHAKE_REQUEST = enum.auto()
    AUTHENTICATE = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()
    REAUTH_PROCESS_HANDSHAKE = enum.auto()
    REAUTH_BAD_MECHANISM = enum.auto()


class _Refused(Exception):
    """The authentication has failed; rule 2."""

    def __init__(self, why: str, response: Respond | Refuse | None = None) -> None:
        super().__init__(why)
        self.response = response


class _Closed(Exception):
    """The connection ends without a response."""


class SaslAuthenticator:
    """One connection's authentication and re-authentications; see the module.

    Args:
        mechanisms: of the listener.
        is_valid: whether ApiVersions has a proper name and version of the client's software.
        protocol: the APIs of the listener.
    """

    def __init__(
        self,
        mechanisms: Mechanisms,
        is_valid: Callable[[RequestHeader, Any], bool],
        protocol: KafkaProtocol = BROKER_PROTOCOL,
    ) -> None:
        self._protocol = protocol
        self.state = State.INITIAL_REQUEST
        self._mechanisms = mechanisms
        self._is_valid = is_valid
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._has_headers = False
        self._previous: Authenticated | None = None
        self._session: Authenticated | None = None
        self._reauthenticated_ms: int | None = None
        self._bad_mechanism = ""

    @property
    def is_complete(self) -> bool:
        """Whether the connection's requests are served."""
        return self.state is State.COMPLETE

    @property
    def expects_request(self) -> bool:
        """Whether the next frame is a request of Kafka's protocol; else it is a bare token."""
        return self.state is not State.AUTHENTICATE or self._has_headers

    @property
    def is_reauthentication(self) -> bool:
        """Whether the connection had authenticated itself before."""
        return self._previous is not None

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the session has ended; rule 3."""
        ends_ms = None if self._session is None else self._session.ends_ms
        return ends_ms is not None and now_ms > ends_ms

    def begins_again(self, now_ms: int) -> bool:
        """Begin a re-authentication, unless sessions do not end or one began less than a second ago; rule 3.

        Returns:
            Whether it has begun, and the frame with SaslHandshake is to be ``received``.
        """
        session, last_ms = self._session, self._reauthenticated_ms
        if session is None or session.ends_ms is None:
            return False
        if last_ms is not None and now_ms - last_ms < REAUTHENTICATION_INTERVAL_MS:
            return False
        self._reauthenticated_ms = now_ms
        self._previous, self._exchange = session, None
        self._has_headers = False
        self.state = State.REAUTH_PROCESS_HANDSHAKE
        return True

    def received(self, frame: bytes, now_ms: int) -> list[Effect]:
        """Take the next frame of a connection that is not authenticated.

        Args:
            frame: without its length.
            now_ms: the time, by the broker's own clock.
        """
        try:
            match self.state:
                case State.AUTHENTICATE if self._exchange is not None:
                    return self._token(frame, self._exchange, now_ms)
                case State.REAUTH_BAD_MECHANISM:
                    raise _Refused(self._bad_mechanism)  # as in Kafka without a response
                case _:
                    return self._request(frame)
        except _Refused as problem:
            self.state = State.FAILED
            return [Failed(str(problem), problem.response)]
        except (_Closed, MalformedMessage, UnsupportedRequest) as problem:
            self.state = State.FAILED
            return [Close(str(problem))]

    # ApiVersions and SaslHandshake

    def _request(self, frame: bytes) -> list[Effect]:
        view = memoryview(frame)
        try:
            header = read_request_header(view, self._protocol)
        except (MalformedMessage, UnsupportedRequest):
            if self.state is not State.INITIAL_REQUEST:
                raise
            why = "Exception handling first SASL packet from client, GSSAPI is not supported by server"
            raise _Refused(why) from None
        if self.state is State.INITIAL_REQUEST:
            self.state = State.HANDSHAKE_OR_VERSIONS_REQUEST
        if header.key == API_VERSIONS:
            return self._versions(header, view)
        if header.key != SASL_HANDSHAKE:
            name = self._enum_name(header.key)
            raise _Refused(f"Unexpected Kafka request of type {name} during SASL handshake.")
        request, _ = decode(header.key, header.version, view, header.body_at, protocol=self._protocol)
        return self._handshake(header, request.mechanism)

    def _versions(self, header: RequestHeader, view: memoryview) -> list[Effect]:
        if self.state is not State.HANDSHAKE_OR_VERSIONS_REQUEST:
            name = self.state.name
            raise _Closed(f"Unexpected ApiVersions request received during SASL authentication state {name}")
        if not self._protocol.apis[API_VERSIONS].has(header.version):
            return [RespondVersions(header, None)]
        request, _ = decode(header.key, header.version, view, header.body_at, protocol=self._protocol)
        if self._is_valid(header, request):
            self.state = State.HANDSHAKE_REQUEST
        return [RespondVersions(header, request)]

    def _handshake(self, header: RequestHeader, mechanism: str) -> list[Effect]:
        self._has_headers = self._has_headers or header.version >= 1
        enabled = in_hash_order(self._mechanisms.enabled)
        if mechanism not in enabled:
            refusal = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
            raise _Refused(f"Unsupported SASL mechanism {mechanism}", Respond(header, refusal))
        response = Respond(header, SaslHandshakeResponse(mechanisms=enabled))
        if self._previous is not None and self._previous.mechanism != mechanism:
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._previous.mechanism}'"
            )
            self.state = State.REAUTH_BAD_MECHANISM
            return [response]
        self._mechanism = mechanism
        self._exchange = self._mechanisms.exchange(mechanism)
        self.state = State.AUTHENTICATE
        return [response]

    # Tokens

    def _token(self, frame: bytes, exchange: Exchange, now_ms: int) -> list[Effect]:
        if not self._has_headers:
            return self._bare_token(frame, exchange, now_ms)
        header = read_request_header(memoryview(frame), self._protocol)
        if header.key != SASL_AUTHENTICATE:
            why = f"Unexpected Kafka request of type {self._enum_name(header.key)} during SASL authentication."
            raise _Refused(why, Refuse(header, frame, ErrorCode.ILLEGAL_SASL_STATE))
        request, _ = decode(header.key, header.version, memoryview(frame), header.body_at, protocol=self._protocol)
        try:
            token = exchange.evaluate(bytes(request.auth_bytes), now_ms)
            session = self._completed(exchange, now_ms)
        except AuthenticationRefused as problem:
            raise _Refused(str(problem), _failure(header, str(problem))) from None
        except InvalidCredentials:
            said = (
                f"Authentication failed during {self._what} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
            raise _Refused(said, _failure(header, said)) from None
        if session is None:
            return [Respond(header, SaslAuthenticateResponse(0, None, token))]
        lifetime_ms = 0 if session.ends_ms is None else session.ends_ms - now_ms
        return [Respond(header, SaslAuthenticateResponse(0, None, token, lifetime_ms)), session]

    def _bare_token(self, frame: bytes, exchange: Exchange, now_ms: int) -> list[Effect]:
        """Take a token without Kafka's headers; a failure has no response (KIP-152 says why that was changed)."""
        try:
            effects: list[Effect] = [SendToken(exchange.evaluate(frame, now_ms))]
            session = self._completed(exchange, now_ms)
        except AuthenticationRefused as problem:
            raise _Refused(str(problem)) from None
        except InvalidCredentials as problem:
            raise _Closed(f"Failed {self._what} by {self._mechanism}: {problem}") from None
        return effects if session is None else [*effects, session]

    def _completed(self, exchange: Exchange, now_ms: int) -> Authenticated | None:
        """Return the session that has begun; None during the exchange."""
        if exchange.principal_name is None:
            return None
        principal = Principal(USER, exchange.principal_name)
        previous = self._previous
        if previous is not None and previous.principal != principal:
            raise AuthenticationRefused(
                "Cannot change principals during re-authentication from "
                f"{previous.principal.kind}.{previous.principal.name}: {principal.kind}.{principal.name}"
            )
        limits: list[int] = []
        if exchange.expires_ms is not None:
            limits.append(exchange.expires_ms - now_ms)
        max_reauth_ms = self._mechanisms.max_reauth_ms(self._mechanism)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        ends_ms = now_ms + max(0, min(limits)) if limits else None
        session = Authenticated(principal, self._mechanism, ends_ms)
        self._session, self._exchange = session, None
        self.state = State.COMPLETE
        return session

    def _enum_name(self, key: int) -> str:
        """Return an API's name as Kafka's enumeration has it: ``SASL_HANDSHAKE``."""
        name = self._protocol.apis[key].name
        return "".join(f"_{letter}" if letter.isupper() and at else letter for at, letter in enumerate(name)).upper()

    @property
    def _what(self) -> str:
        return "authentication" if self._previous is None else "re-authentication"


def _failure(header: RequestHeader, message: str) -> Respond:
    return Respond(header, SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message))


def in_hash_order(names: Sequence[str]) -> list[str]:
    """Return names in Java's HashSet order, which SaslHandshake's response has."""

    def bucket(name: str) -> int:
        spread = java_hash(name) & 0xFFFFFFFF
        return (spread ^ (spread >> 16)) % _BUCKETS

    return sorted(dict.fromkeys(names), key=bucket)


_BUCKETS = 16
"""Buckets of a HashSet of up to 12 elements."""
