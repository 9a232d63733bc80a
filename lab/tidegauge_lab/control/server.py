"""The control server: a Starlette application from the declared endpoints, and uvicorn.

Every response is JSON; an error is ``{"error": {"name", "message"}}`` with the actual state beside it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegauge.channel_options import OF_THE_LAB
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge_lab.control.control_request import MAX_BODY_BYTES, ControlRequest, read
from tidegauge_lab.control.endpoints import ENDPOINTS, Endpoint
from tidegauge_lab.control.gate import refusal
from tidegauge_lab.control.json_in_portions import rendered
from tidegauge_lab.control.problems import RefusedError, malformed, refused, unwritable
from tidegauge_lab.http_server import HttpServer

_STATUS_NAMES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_WITH_SLASHES = frozenset({"target", "group", "transaction"})
"""Names in paths that may hold slashes: of groups and transactional ids."""
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_SHUTDOWN_SECONDS = 3
_IDLE_SECONDS = 3600
"""How long an idle connection stays open: longer than the pools of clients keep theirs (1200 s in Java 17), so that it
is the client that closes. A request that crosses the server's closing would be lost, and no client repeats a POST."""


class Served(Protocol):
    """The implementation behind the server: a method for each endpoint, by its name."""

    async def close(self) -> None:
        """End."""
        ...


class _Gate:
    """Refuses what ``gate`` refuses, before anything is read."""

    def __init__(self, app: ASGIApp, names: Collection[str], token: str) -> None:
        self._app = app
        self._names = names
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            status, sentence = refusal(Request(scope).headers, self._names, self._token)
            if status:
                name = "UNAUTHORIZED" if status == 401 else "FORBIDDEN"
                await _json(status, RefusedError(status, name, sentence).body)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def application(control: Served, *, names: Collection[str] = (), token: str = "") -> Starlette:
    """Return the application.

    Args:
        control: does the work of requests; it has been started, and is closed when the application ends.
        names: host names besides localhost under which it is reached.
        token: that each request needs; empty: none.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await control.close()

    return Starlette(
        routes=[
            Route(_starlette_path(one.path), _handler(control, one), methods=[one.method], name=one.name)
            for one in ENDPOINTS
        ],
        middleware=[Middleware(_Gate, names=names, token=token)],
        exception_handlers={HTTPException: _on_http_error, Exception: _on_defect},
        lifespan=lifespan,
    )


def _starlette_path(path: str) -> str:
    for name in _WITH_SLASHES:
        path = path.replace(f"{{{name}}}", f"{{{name}:path}}")
    return path


def _handler(control: Served, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    serve: Callable[[ControlRequest], Awaitable[Any]] = getattr(control, endpoint.name)

    async def handle(request: Request) -> Response:
        OF_THE_LAB.set(True)
        try:
            asked = read(endpoint, request.path_params, request.query_params.multi_items(), await _body(request))
            body = await rendered(await serve(asked))
            return Response(body, headers=_HEADERS, media_type="application/json")
        except RefusedError as problem:
            return _json(problem.status, problem.body)
        except TidegaugeError as problem:
            found = refused(problem)
            return _json(found.status, found.body)
        except OSError as problem:
            if (full := unwritable(problem)) is None:
                raise
            return _json(full.status, full.body)
        except ClientDisconnect:
            return Response()  # there is no connection on which it could be sent

    return handle


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise malformed(f"the body is longer than {MAX_BODY_BYTES} bytes")
    return body


def _on_http_error(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException), "it is registered for these"
    name = _STATUS_NAMES.get(problem.status_code, ErrorCode.INVALID_REQUEST.name)
    sentence = f"{problem.detail}; GET /v1/openapi.json has all paths"
    return _json(problem.status_code, RefusedError(problem.status_code, name, sentence).body)


def _on_defect(_: Request, problem: Exception) -> Response:
    sentence = f"a defect of the control server: {type(problem).__name__}: {problem}; its log has more"
    return _json(500, RefusedError(500, ErrorCode.UNKNOWN_SERVER_ERROR.name, sentence).body)


def _json(status: int, value: Any) -> Response:
    return JSONResponse(value, status_code=status, headers=_HEADERS)


def listen(host: str, port: int) -> socket.socket:
    """Take an address (port 0: any that is free).

    Raises:
        TidegaugeError: it can't be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as problem:
        listener.close()
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{address_of(host, port)} can't be used for the control server: {problem.strerror or problem}; give "
            "another address",
        ) from None
    listener.listen()
    return listener


class _Server(HttpServer):
    """Reports when it serves."""

    def __init__(self, config: uvicorn.Config, is_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._is_ready = is_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._is_ready()


async def serve(app: Starlette, listener: socket.socket, is_ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        app: the application.
        listener: an address that was taken.
        is_ready: called once requests are served.
    """
    await _Server(config_of(app), is_ready).serve(sockets=[listener])


def config_of(app: ASGIApp) -> uvicorn.Config:
    """Return how the application is served."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
    )
