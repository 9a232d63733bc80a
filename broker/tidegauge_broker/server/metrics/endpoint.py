"""The HTTP end of the metrics: GET /metrics on an address of its own, nothing else.

Contract: one request a connection; a request that does not come within ``PATIENCE_SECONDS`` or is longer than
``MOST_BYTES`` is dropped. The page is made when it is asked for, on the loop: it costs nothing until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.listeners import Listener
from tidegauge_broker.server.metrics.exposition import CONTENT_TYPE

LOG = logging.getLogger("tidegauge.metrics")
SETTING = "metrics.listener"
PATIENCE_SECONDS = 5.0
MOST_BYTES = 8192
_MOST_PORT = 65535
_PLAIN = "text/plain; charset=utf-8"


def parse_address(text: str, first: Listener) -> tuple[str, int]:
    """Read ``HOST:PORT``, or ``+N``: the first listener's host, and its port plus N. Port 0 takes a free one.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    if text.startswith("+") and text[1:].isdecimal():
        host, port = first.host, first.port + int(text[1:])
    else:
        host, _, digits = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        port = int(digits) if host and digits.isascii() and digits.isdecimal() else -1
    if not 0 <= port <= _MOST_PORT:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text} for configuration {SETTING}: write HOST:PORT, or +N for the broker's port plus N",
        )
    return host, port


class MetricsEndpoint:
    """Serves the page.

    Args:
        page: makes it.
    """

    def __init__(self, page: Callable[[], Awaitable[str]]) -> None:
        self._page = page
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            TidegaugeError: the address can't be bound.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MOST_BYTES)
        except OSError as problem:
            raise TidegaugeError(
                ErrorCode.NETWORK_EXCEPTION,
                f"{address_of(host, port)} can't be bound for metrics: {problem.strerror}; free the port or change "
                f"{SETTING}",
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]
        LOG.info("Metrics at http://%s:%d/metrics", host, self.port)

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self.respond(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client closed the connection, or sent no request
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def respond(self, head: bytes) -> bytes:
        """Return the complete response to a request's head."""
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        if path != "/metrics":
            return _response("404 Not Found", "The metrics are at /metrics\n", _PLAIN, method)
        if method not in {"GET", "HEAD"}:
            return _response("405 Method Not Allowed", "Only GET\n", _PLAIN, method)
        try:
            page = await self._page()
        except Exception:
            LOG.exception("The metrics could not be collected")
            return _response("500 Internal Server Error", "See the broker's log\n", _PLAIN, method)
        return _response("200 OK", page, CONTENT_TYPE, method)


def _response(status: str, text: str, content_type: str, method: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)
