"""A port of this machine that passes connections on to another one: a second address of the same broker."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

_PIECE_BYTES = 65_536


class Forwarder:
    """Listens on a free port of 127.0.0.1 while it is entered; ``taken`` counts the connections that it took.

    Args:
        port: of 127.0.0.1, where connections go.
        silent: how many connections are taken, the first ones, and nothing ever said on them.
    """

    def __init__(self, port: int, *, silent: int = 0) -> None:
        self.taken = 0
        self._to = port
        self._silent = silent
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        for one in (self._listening, *self._open):
            _shut(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # it has been closed
            self.taken += 1
            if self.taken <= self._silent:
                self._open.add(client)
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                _shut(client)
                continue
            self._open |= {client, broker}
            for source, target in ((client, broker), (broker, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE_BYTES):
                target.sendall(data)
        for one in (source, target):
            _shut(one)
            self._open.discard(one)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
