"""Serves the page ``play`` on 127.0.0.1: static files out of memory, compressed, and nothing else.

A request by another name for this host is refused, as by ``tidegauge watch`` (``watch.gate``). Files are sent
compressed to whoever takes gzip; each is compressed once.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.play.site import POLICY, TYPES
from tidegauge_lab.watch.gate import refusal_of_reading

IDLE_SECONDS = 30.0
"""How long a connection may send nothing."""
_PACKED = frozenset({".zip"})
"""Files that are compressed already."""
_LEVEL = 6


class Files:
    """The files, and their compressed forms once one has been asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._compressed: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def plain(self, name: str) -> bytes | None:
        """Return a file as it is; None: there is none."""
        return self._files.get(name)

    def compressed(self, name: str) -> bytes | None:
        """Return a file compressed by gzip; None if absent or not worth it."""
        content = self._files.get(name)
        if content is None or PurePosixPath(name).suffix in _PACKED:
            return None
        with self._lock:
            if name not in self._compressed:
                self._compressed[name] = gzip.compress(content, _LEVEL, mtime=0)
            return self._compressed[name]

    def wire_bytes(self) -> int:
        """Return what a first visit loads, compressed."""
        return sum(len(self.compressed(name) or content) for name, content in self._files.items())


class PlayServer(ThreadingHTTPServer):
    """The server; ``port`` is the one that it has."""

    daemon_threads = True

    def __init__(self, port: int, files: Mapping[str, bytes]) -> None:
        self.files = Files(files)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as problem:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"port {port} can't be used: {problem.strerror}; give another with --port"
            ) from None
        self.port: int = self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that breaks its connection off is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: PlayServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self._serve(with_body=True)

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def _serve(self, *, with_body: bool) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if refused := refusal_of_reading(headers, self.server.port):
            self._respond(403, "text/plain; charset=utf-8", refused.encode(), with_body=with_body)
            return
        path = self.path.partition("?")[0].removeprefix("/") or "index.html"
        files = self.server.files
        content = files.plain(path)
        if content is None:
            self._respond(404, "text/plain; charset=utf-8", b"there is no such file", with_body=with_body)
            return
        kind = TYPES[PurePosixPath(path).suffix]
        packed = files.compressed(path) if "gzip" in headers.get("accept-encoding", "") else None
        self._respond(200, kind, packed or content, with_body=with_body, gzipped=packed is not None)

    def _respond(self, status: int, kind: str, content: bytes, *, with_body: bool, gzipped: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if gzipped:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Vary", "Accept-Encoding")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", f"{POLICY}; frame-ancestors 'none'")
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: the terminal has the address."""

    def version_string(self) -> str:
        return "tidegauge"
