"""Authenticates the callers of a gRPC listener: by the credential of each call, or by the client's certificate.

Rules:
    1. On a SASL_SSL listener each call needs a credential (``tidegauge.call_credentials``), except calls of the health
       service, as ApiVersions needs none on Kafka's listeners. A call without one that is accepted ends with
       UNAUTHENTICATED after ``connection.failed.authentication.delay.ms``, and is a line in the log.
    2. A stream is one call. When its session ends, the received requests get their responses, and the call ends with
       UNAVAILABLE, as a Kafka listener closes the connection: the client opens another stream, with a new credential.
    3. On an SSL listener with ``ssl.client.auth=required`` the client's certificate gives the principal.
    4. On all other listeners callers are ``User:ANONYMOUS``, and calls are not wrapped.

It wraps handlers as services are added to a server.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from tidegauge.call_credentials import AUTHORIZATION, MECHANISM
from tidegauge.principal import Principal
from tidegauge_broker.security.sasl.call_authenticator import CallAuthenticator, CallSession, ListenerMechanisms
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused
from tidegauge_broker.server.service.acting import ACTS_FOR
from tidegauge_broker.server.wire.client_certificates import ClientCertificates, NoPrincipal
from tidegauge_broker.server.wire.grpc.callers import host_of
from tidegauge_broker.server.wire.grpc.password_checks import PasswordChecks

LOG = logging.getLogger("tidegauge.grpc")
Context = grpc.aio.ServicerContext[Any, Any]
Around = Callable[[str, str, Any], Any]
"""Wraps a handler, given a service's full name, a method's name and the handler."""
_OPEN_TO_ALL = {"grpc.health.v1.Health"}
_SESSION_ENDED = "The session of this call's credential has ended; call again"
_SECRET_BYTES = 32
_CERTIFICATES_KNOWN = 256


class Sasl(ListenerMechanisms, Protocol):
    """The listener's SASL, for its calls.

    Attributes:
        delay_ms: ``connection.failed.authentication.delay.ms``.
    """

    delay_ms: int


class Refused(Exception):
    """The call is not authenticated; the text is the client's too."""


class _Authentication(Protocol):
    async def __call__(self, context: Context) -> CallSession:
        """Authenticate a call.

        Raises:
            Refused: see there.
        """
        ...


def by_credential(sasl: Sasl, now_ms: Callable[[], int]) -> Around:
    """Return what authenticates the calls of a listener with SASL; rule 1."""
    authenticator = CallAuthenticator(sasl, secrets.token_bytes(_SECRET_BYTES))
    checks = PasswordChecks(authenticator.is_right)

    async def authenticate(context: Context) -> CallSession:
        value = mechanism = None
        for key, text in context.invocation_metadata() or ():
            if key == AUTHORIZATION:
                value = str(text)
            elif key == MECHANISM:
                mechanism = str(text)
        known = authenticator.known(value, mechanism, now_ms())
        if known is not None:
            return known
        try:
            begun = authenticator.begin(value, mechanism, now_ms())
            if isinstance(begun, CallSession):
                return begun
            peer = context.peer()
            known_as = authenticator.key(str(value), mechanism)
            right = await checks.first_right(host_of(peer), peer, known_as, begun)
            if right is None:
                raise authenticator.refusal(begun)
            return authenticator.proved(str(value), mechanism, right, now_ms())
        except AuthenticationRefused as problem:
            raise Refused(str(problem)) from None

    return _Authenticated(authenticate, sasl.delay_ms, now_ms).around


def by_certificate(certificates: ClientCertificates, delay_ms: int, now_ms: Callable[[], int]) -> Around:
    """Return the wrapper that gives calls their certificates' principals; rule 3."""

    @functools.lru_cache(_CERTIFICATES_KNOWN)
    def principal_of(pem: bytes) -> Principal:
        return certificates.principal(ssl.PEM_cert_to_DER_cert(pem.decode()) if pem else None)

    async def authenticate(context: Context) -> CallSession:
        found: Any = context.auth_context().get("x509_pem_cert") or (b"",)
        try:
            return CallSession(principal_of(bytes(found[0])), None)
        except NoPrincipal as problem:
            raise Refused(str(problem)) from None

    return _Authenticated(authenticate, delay_ms, now_ms).around


class _Authenticated:
    """Wraps handlers; see the module."""

    def __init__(self, authenticate: _Authentication, delay_ms: int, now_ms: Callable[[], int]) -> None:
        self._authenticate = authenticate
        self._delay_ms = delay_ms
        self._now_ms = now_ms

    def around(self, service: str, method: str, handler: Any) -> Any:
        """Return a handler whose calls are authenticated first."""
        del method
        if service in _OPEN_TO_ALL:
            return handler
        read, write = handler.request_deserializer, handler.response_serializer
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream), read, write)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._responses(handler.unary_stream), read, write)
        return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary), read, write)

    async def _session(self, context: Context) -> CallSession:
        """Return the session of a call, or end the call; rule 1."""
        try:
            session = await self._authenticate(context)
        except Refused as problem:
            LOG.info("Failed authentication with /%s (%s)", host_of(context.peer()), problem)
            await asyncio.sleep(self._delay_ms / 1000)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(problem))
            raise
        ACTS_FOR.set(session.principal)
        return session

    def _unary(self, handle: Any) -> Callable[[Any, Context], Awaitable[Any]]:
        async def authenticated(request: Any, context: Context) -> Any:
            await self._session(context)
            return await handle(request, context)

        return authenticated

    def _responses(self, handle: Any) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def authenticated(request: Any, context: Context) -> AsyncIterator[Any]:
            await self._session(context)
            async for response in handle(request, context):
                yield response

        return authenticated

    def _stream(self, handle: Any) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def authenticated(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            session = await self._session(context)
            limited = _UntilEnd(requests, session.ends_ms, self._now_ms)
            async for response in handle(limited if session.ends_ms is not None else requests, context):
                yield response
            if limited.has_ended:
                await context.abort(grpc.StatusCode.UNAVAILABLE, _SESSION_ENDED)

        return authenticated


class _UntilEnd:
    """The requests of a stream, as long as its session lasts; rule 2."""

    def __init__(self, requests: AsyncIterator[Any], ends_ms: int | None, now_ms: Callable[[], int]) -> None:
        self.has_ended = False
        self._requests = requests
        self._ends_ms = ends_ms
        self._now_ms = now_ms

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        if self._ends_ms is not None and self._now_ms() > self._ends_ms:
            self.has_ended = True
            raise StopAsyncIteration
        return request
