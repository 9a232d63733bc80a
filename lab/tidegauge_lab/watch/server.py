"""The page's server: a Starlette application, and uvicorn on 127.0.0.1.

    GET /           the page, with this run's token in it
    GET /watch.css, /page.js, ...: the page's style and its scripts (page_files.py)
    GET /vocabulary the declared faults and actions as JSON Schema, from which the page builds its form and its buttons
    GET /events     server-sent events: ``view`` and ``history`` once, then ``change`` and ``events`` (hub.py)
    GET /sentences.json: what the page says, in Chinese (chinese.py)
    GET /recording  the run so far as one HTML file (recording.py)
    GET /lessons    the labs and stories that there are; GET /labs/NAME?language=zh: a lab's page (pages.py)
    GET /docs/...   the pages of ``docs`` to which labs link, where there is a checkout
    POST /action    a button (actions.py); refused unless it comes from the page (gate.py)
    POST /lab, /story: labs and stories (teaching.py); refused in the same way

Errors are JSON ``{"error": {"name", "message"}}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.schema import vocabulary
from tidegauge.files import is_of_a_disk, unusable
from tidegauge_client.languages import CHINESE, ENGLISH
from tidegauge_lab.http_server import HttpServer
from tidegauge_lab.watch.actions import Action, read_action
from tidegauge_lab.watch.chinese import sentences_of_page
from tidegauge_lab.watch.gate import refusal_of_change, refusal_of_reading
from tidegauge_lab.watch.hub import Hub
from tidegauge_lab.watch.page_files import DOCUMENT, SCRIPTS, STYLES, page_file
from tidegauge_lab.watch.pages import contents, document, lab_page
from tidegauge_lab.watch.recording import recording_of
from tidegauge_lab.watch.teaching import Teaching

MAX_ACTION_BYTES = 4096
LAST_BYTES_SECONDS = 1.0
"""How long browsers have to take pending bytes when the server ends."""
RECORDING = "tidegauge-recording.html"
_TOKEN_PLACE = "{{token}}"  # noqa: S105 - where the token goes
_TYPES = {**dict.fromkeys(STYLES, "text/css"), **dict.fromkeys(SCRIPTS, "text/javascript")}
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]

Do = Callable[[Action], Awaitable[str]]
Change = Callable[[object], Awaitable[dict[str, Any]]]
Endpoint = Callable[[Request], Awaitable[Response]]


class _Gate:
    """Refuses what came by another name, and gives every response the headers that keep other sites out."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        refused = refusal_of_reading(Request(scope).headers, self._port)
        response = _refused(403, "FORBIDDEN", refused) if refused else self._app
        await response(scope, receive, with_headers)


def application(hub: Hub, do: Do | None, *, port: int, token: str, teaching: Teaching | None = None) -> Starlette:
    """Return the application.

    Args:
        hub: what there is to see.
        do: does an action; None for a cluster that is only looked at.
        port: the one that the server is reached at.
        token: of this run.
        teaching: labs and stories; None for a cluster that is only looked at.
    """
    page = page_file(DOCUMENT).replace(_TOKEN_PLACE, token)

    async def index(_: Request) -> Response:
        return Response(page, media_type="text/html")

    async def asset(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response(page_file(name), media_type=_TYPES[name])

    async def declared(_: Request) -> Response:
        return JSONResponse(vocabulary())

    async def sentences(_: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(sentences_of_page))

    async def events(_: Request) -> Response:
        return StreamingResponse(_stream(hub), media_type="text/event-stream")

    async def recording(_: Request) -> Response:
        saved = await asyncio.to_thread(recording_of, hub.recorded, hub.name, vocabulary())
        named = {"content-disposition": f'attachment; filename="{RECORDING}"'}
        return Response(saved, media_type="text/html", headers=named)

    async def lessons(_: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(contents))

    async def lab(request: Request) -> Response:
        try:
            language = CHINESE if request.query_params.get("language") == CHINESE else ENGLISH
            return JSONResponse(lab_page(request.path_params["name"], language))
        except TidegaugeError as problem:
            return _refused(404, problem.code.name, problem.message)

    async def docs(request: Request) -> Response:
        found = await asyncio.to_thread(document, request.path_params["path"])
        if found is None:
            return _refused(404, "NOT_FOUND", "there is no such page in docs")
        return Response(found[0], media_type=found[1])

    async def act(value: object) -> dict[str, Any]:
        wanted = read_action(value)
        return {"message": "" if do is None else await do(wanted)}

    def changes(change: Change | None) -> Endpoint:
        return functools.partial(_change, hub, change, port, token)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(hub.run())
        try:
            yield
        finally:
            await hub.close()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    routes = [
        Route("/", index),
        *(Route(f"/{name}", asset) for name in _TYPES),
        Route("/vocabulary", declared),
        Route("/sentences.json", sentences),
        Route("/events", events),
        Route("/recording", recording),
        Route("/lessons", lessons),
        Route("/labs/{name}", lab),
        Route("/docs/{path:path}", docs),
        Route("/action", changes(None if do is None else act), methods=["POST"]),
        Route("/lab", changes(None if teaching is None else teaching.do_lab), methods=["POST"]),
        Route("/story", changes(None if teaching is None else teaching.do_story), methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Gate, port=port)],
        exception_handlers={Exception: _on_defect},
        lifespan=lifespan,
    )


async def _change(hub: Hub, change: Change | None, port: int, token: str, request: Request) -> Response:
    """Let the page alone change something; None: there is nothing that may be changed."""
    if refused := refusal_of_change(request.headers, port, token):
        return _refused(403, "FORBIDDEN", refused)
    if change is None:
        return _refused(403, "FORBIDDEN", "this cluster is only looked at: buttons are for clusters of the lab")
    try:
        return JSONResponse(await change(json.loads(await _body(request))))
    except ValueError:
        return _refused(400, ErrorCode.INVALID_REQUEST.name, "an action is a short JSON object")
    except TidegaugeError as problem:
        status = 400 if problem.code is ErrorCode.INVALID_REQUEST else 409
        return _refused(status, problem.code.name, problem.message)
    except OSError as problem:
        if not is_of_a_disk(problem):
            raise
        advice = "Brokers whose disk is full halt, too: make room, then Start brings them back"
        return _refused(409, ErrorCode.KAFKA_STORAGE_ERROR.name, f"{unusable(problem)}. {advice}")
    finally:
        hub.soon()


def _refused(status: int, name: str, sentence: str) -> JSONResponse:
    return JSONResponse({"error": {"name": name, "message": sentence}}, status_code=status)


async def _on_defect(_: Request, problem: Exception) -> Response:
    """Say what happened; the terminal of `tidegauge watch` has the traceback."""
    sentence = f"a defect of this page's server: {type(problem).__name__}: {problem}; its terminal has more"
    return _refused(500, ErrorCode.UNKNOWN_SERVER_ERROR.name, sentence)


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_ACTION_BYTES:
            raise ValueError("too long")
    return body


async def _stream(hub: Hub) -> AsyncIterator[str]:
    async with contextlib.aclosing(hub.watch()) as messages:
        async for name, value in messages:
            if name == "beat":
                yield ": still here\n\n"
            else:
                yield f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"


def listen(port: int) -> socket.socket:
    """Take the port (0: any that is free) on 127.0.0.1.

    Raises:
        TidegaugeError: it is taken.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as problem:
        listener.close()
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"port {port} can't be used: {problem.strerror}; give another with --port"
        ) from None
    listener.listen()
    return listener


class _Server(HttpServer):
    """Lets the watchers go as soon as it is asked to end; their streams would last for ever.

    A browser that does not read, such as one that is stopped, takes not even the end of its stream: its connection is
    broken off. A story is ended in here, too: once the server has ended, it raises the signal again that ended it.
    """

    def __init__(self, config: uvicorn.Config, hub: Hub, teaching: Teaching | None) -> None:
        super().__init__(config)
        self._hub = hub
        self._teaching = teaching

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._hub.close()
        if self._teaching is not None:
            await self._teaching.close()
        breaking_off = asyncio.create_task(self._break_off())
        try:
            await super().shutdown(sockets)
        finally:
            breaking_off.cancel()

    async def _break_off(self) -> None:
        await asyncio.sleep(LAST_BYTES_SECONDS)
        for connection in list(self.server_state.connections):
            if connection.transport.get_write_buffer_size() > 0:
                connection.transport.abort()


async def serve(app: Starlette, hub: Hub, listener: socket.socket, teaching: Teaching | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, ws="none", server_header=False, timeout_graceful_shutdown=3
    )
    await _Server(config, hub, teaching).serve(sockets=[listener])
