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
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        """Close all; the accepting thread is over before its connections are counted, so that none stays open."""
        _end(self._listening)
        self._accepting.join()
        for one in self._open:
            _end(one)
        for thread in self._threads:
            thread.join()
        for one in (self._listening, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # it has been shut
            self._open.append(client)
            self.taken += 1
            if self.taken > self._silent:
                self._forward(client)

    def _forward(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            _end(client)
            return
        self._open.append(broker)
        for source, target in ((client, broker), (broker, client)):
            self._threads.append(threading.Thread(target=self._pass_on, args=(source, target), daemon=True))
            self._threads[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE_BYTES):
                target.sendall(data)
        for one in (source, target):
            _end(one)


def _end(one: socket.socket) -> None:
    """Let what waits on a socket see its end; its descriptor stays open."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
