"""A channel to one broker's Kafka listener: connects when needed, agrees on versions, limits the time of requests.

Contract: ``request`` returns the response's message or raises a ``TidegaugeError``:

    NETWORK_EXCEPTION    no connection (refused, no such host, TLS handshake, credentials that the peer does not take:
                         ``NotAuthenticated``), or it ended before the response came
    REQUEST_TIMED_OUT    no response in time; the connection is closed, so that the late response is not read
    UNSUPPORTED_VERSION  this side and the peer have no version of the API in common

A connection begins with ApiVersions, and with SASL if there is a ``Login``; when its session is about to end, the
next request waits until it has authenticated itself again (KIP-368). Each request then has the highest version that
both sides know. A connection that ended is made again by the next request, after a back-off that doubles with each
failure. An address is ``host:port``, an IPv6 host in brackets.
Source: ``NetworkClient``, ``InterBrokerSendThread``, ``BrokerBlockingSender``; ApiVersions: KIP-35, KIP-511.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidegauge import __version__
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.handshakes import client_reason
from tidegauge.host_addresses import host_in
from tidegauge.kafka.apis import API_VERSIONS, BROKER_PROTOCOL, Protocol
from tidegauge.kafka_connection import KafkaConnection
from tidegauge.kafka_login import log_in
from tidegauge.logical_clock import LogicalClock
from tidegauge.sasl_client import AuthenticationFailed, Login, renewed_after_ms
from tidegauge.security import PLAIN, Security, client_context

FIRST_BACKOFF_SECONDS = 0.05
LAST_BACKOFF_SECONDS = 0.5
CONNECT_SECONDS = 10.0
"""Limit of one attempt to connect: Kafka's ``socket.connection.setup.timeout.ms``."""
_API_VERSIONS_VERSION = 3

Dial = Callable[[str, Callable[[], KafkaConnection]], Awaitable[KafkaConnection]]
"""Connects to an address, with the protocol that the second argument makes; raises OSError."""


class NotAuthenticated(TidegaugeError):
    """NETWORK_EXCEPTION: the peer does not take this side's credentials, or does not know them itself."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class Dialer:
    """Opens sockets, with TLS where ``security`` asks for it.

    Args:
        security: of all connections.
    """

    def __init__(self, security: Security = PLAIN) -> None:
        self._security = security
        self._context: ssl.SSLContext | None = None

    async def __call__(self, address: str, protocol: Callable[[], KafkaConnection]) -> KafkaConnection:
        """Connect.

        Raises:
            OSError: no connection; an ``ssl.SSLError`` where the handshake failed.
        """
        host, port = host_in(address), address.rpartition(":")[2]
        if self._security.is_tls and self._context is None:
            self._context = client_context(self._security)
        _, connection = await asyncio.get_running_loop().create_connection(
            protocol, host, int(port), ssl=self._context, server_hostname=host if self._context else None
        )
        return connection


class Backoff:
    """Schedules attempts to reach an unreachable peer. Times are in seconds of the event loop's clock."""

    def __init__(self) -> None:
        self._next_seconds = FIRST_BACKOFF_SECONDS
        self._not_before = 0.0

    def failed(self, now: float) -> None:
        """Put the next attempt off, twice as long as the last time."""
        self._not_before = now + self._next_seconds
        self._next_seconds = min(2 * self._next_seconds, LAST_BACKOFF_SECONDS)

    def succeeded(self) -> None:
        """Begin with the shortest back-off again."""
        self._next_seconds = FIRST_BACKOFF_SECONDS
        self._not_before = 0.0

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until the next attempt is due; 0 or less: now."""
        return self._not_before - now


class KafkaChannel:
    """A connection to one peer that is made, authenticated and made again as needed.

    Args:
        address: the peer's.
        client_id: goes with each request; a broker's begins with ``broker-ID``, as Kafka's.
        dial: opens connections.
        login: the credentials of SASL; None: the listener asks for none.
        logical_clock: goes along with requests, and is advanced by responses; None: a client's, which has none.
        connect_seconds: limit of one attempt to connect.
        protocol: the APIs and messages that the peer serves.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        dial: Dial | None = None,
        login: Login | None = None,
        logical_clock: LogicalClock | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        protocol: Protocol = BROKER_PROTOCOL,
    ) -> None:
        self._clock = logical_clock
        self._connect_seconds = connect_seconds
        self._protocol = protocol
        self.address = address
        self.client_id = client_id
        self._dial = dial or Dialer()
        self._login = login
        self._renewed_at_seconds: float | None = None
        self._connection: KafkaConnection | None = None
        self._connecting: asyncio.Task[KafkaConnection] | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._backoff = Backoff()
        self._is_closed = False

    async def request(
        self,
        key: int,
        message: Any,
        timeout_seconds: float,
        *,
        at_most: int | None = None,
        at_least: int = 0,
        truncation_rule: str = "",
    ) -> Any:
        """Send a request and return its response's message.

        Args:
            key: the API's.
            message: of the API's request class.
            timeout_seconds: for everything, a connection that must be made included.
            at_most: highest version to use; None: the highest that this side knows.
            at_least: lowest version that can say what the message says.
            truncation_rule: goes along in the header (``header_tags``); empty: it does not.

        Raises:
            TidegaugeError: the module lists the codes.
        """
        now = asyncio.get_running_loop().time()
        deadline = now + timeout_seconds
        connection = self._ready(now)
        try:
            if connection is None:
                async with asyncio.timeout_at(deadline):
                    connection = await self._connected()
            version = self.version_of(key, at_least, at_most)
            return await connection.send(key, version, message, truncation_rule, deadline)
        except TimeoutError:
            why = f"{self.address} did not respond to {self._protocol.apis[key].name} within {timeout_seconds:g} s"
            if connection is not None:
                connection.close(why)
            raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, why) from None

    async def connection(self) -> KafkaConnection:
        """Return the open connection, connecting or authenticating first if needed.

        The caller sends on it in order.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, there is none.
        """
        return self._ready(asyncio.get_running_loop().time()) or await self._connected()

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and the highest version of each API that the peer serves; empty before the first connection."""
        return self._versions

    def version_of(self, key: int, at_least: int = 0, at_most: int | None = None) -> int:
        """Return the highest version of an API that both sides have, once connected.

        Raises:
            TidegaugeError: UNSUPPORTED_VERSION.
        """
        first, last = self._versions.get(key, (0, -1))
        api = self._protocol.apis[key]
        version = min(last, api.last if at_most is None else at_most)
        if version < max(first, api.first, at_least):
            raise TidegaugeError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} serves "
                + (f"{api.name} in versions {first} to {last}" if last >= 0 else f"no {api.name}")
                + f"; needed is one from {max(api.first, at_least)} to {api.last if at_most is None else at_most}",
            )
        return version

    def disconnect(self, why: str) -> None:
        """Close the connection, if any; requests in flight fail with NETWORK_EXCEPTION. The next request reconnects."""
        if self._connection is not None:
            self._connection.close(why)
        if self._connecting is not None:
            self._connecting.cancel()

    def close(self) -> None:
        """Close the channel for good."""
        self._is_closed = True
        self.disconnect("the channel was closed")

    def _ready(self, now: float) -> KafkaConnection | None:
        """Return the connection if usable at once; None: await ``_connected``."""
        connection = self._connection
        if connection is None or connection.is_closed or self._connecting is not None or self._must_renew(now):
            return None
        return connection

    async def _connected(self) -> KafkaConnection:
        """Return a newly made or authenticated connection; concurrent callers share one attempt."""
        if self._connecting is None:
            current = self._connection
            if self._is_closed:
                raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "the channel was closed")
            attempt = self._connect() if current is None or current.is_closed else self._renew(current)
            self._connecting = asyncio.get_running_loop().create_task(attempt, name=f"connect-{self.address}")
            self._connecting.add_done_callback(self._ended)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if connecting.cancelled() and not (task is not None and task.cancelling()):
                raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "the attempt to connect was given up") from None
            raise

    def _ended(self, connecting: asyncio.Task[KafkaConnection]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # those that wait for it raise it; there may be none left

    async def _connect(self) -> KafkaConnection:
        loop = asyncio.get_running_loop()
        wait_seconds = self._backoff.wait_seconds(loop.time())
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)
        try:
            async with asyncio.timeout(self._connect_seconds):
                connection = await self._dial(
                    self.address, lambda: KafkaConnection(self.client_id, self._clock, self._protocol)
                )
                try:
                    self._versions = await _versions_of(connection, self._protocol)
                    await self._log_in(connection)
                except BaseException:
                    connection.close("the connection was given up before it was ready")
                    raise
        except (OSError, TimeoutError, AuthenticationFailed, TidegaugeError) as problem:
            self._backoff.failed(loop.time())
            raise self._error(problem) from None
        self._backoff.succeeded()
        self._connection = connection
        return connection

    def _must_renew(self, now: float) -> bool:
        return self._renewed_at_seconds is not None and now >= self._renewed_at_seconds

    async def _renew(self, connection: KafkaConnection) -> KafkaConnection:
        """Authenticate an open connection again; the peer responds after all responses in flight."""
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._log_in(connection)
        except BaseException as problem:
            connection.close("the SASL session could not be renewed")
            if isinstance(problem, TimeoutError | AuthenticationFailed | TidegaugeError):
                raise self._error(problem) from None
            raise
        return connection

    async def _log_in(self, connection: KafkaConnection) -> None:
        if self._login is None:
            return
        now_ms = time.time_ns() // 1_000_000
        lifetime_ms = await log_in(connection, self._versions, self._login, now_ms, self._protocol)
        after_ms = renewed_after_ms(lifetime_ms, random.random())
        now = asyncio.get_running_loop().time()
        self._renewed_at_seconds = None if after_ms is None else now + after_ms / 1000

    def _error(self, problem: Exception) -> TidegaugeError:
        why = self._why(problem)
        is_refused = isinstance(problem, AuthenticationFailed)
        return NotAuthenticated(why) if is_refused else TidegaugeError(ErrorCode.NETWORK_EXCEPTION, why)

    def _why(self, problem: Exception) -> str:
        if isinstance(problem, TimeoutError):
            return f"{self.address} did not accept a connection within {self._connect_seconds:g} s"
        text = problem.message if isinstance(problem, TidegaugeError) else str(problem) or type(problem).__name__
        if isinstance(problem, AuthenticationFailed):
            return f"{self.address} did not authenticate this side: {text}"
        if isinstance(problem, ssl.SSLError):
            text = client_reason(text, host_in(self.address)) or text
        return f"no connection to {self.address}: {text}"


async def _versions_of(connection: KafkaConnection, protocol: Protocol) -> dict[int, tuple[int, int]]:
    """Return the peer's lowest and highest version of each API.

    Raises:
        TidegaugeError: the peer refuses to say, or the connection ended.
    """
    request = protocol.message_class(API_VERSIONS, response=False)("tidegauge", __version__)
    response = await connection.send(API_VERSIONS, _API_VERSIONS_VERSION, request)
    if response.error_code:
        raise TidegaugeError(ErrorCode.of(response.error_code), "the peer does not report the versions that it serves")
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
