"""The end of the lab's two servers: Ctrl-C pressed twice, and a browser that does not read."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from tidegauge_lab.control import server as control_server
from tidegauge_lab.watch import server as watch_server


async def _app(*_: Any) -> None:
    """Serve nothing."""


@pytest.mark.parametrize(
    "server",
    [
        watch_server._Server(uvicorn.Config(_app), hub=None, teaching=None),  # type: ignore[arg-type]  # not reached
        control_server._Server(uvicorn.Config(_app), is_ready=lambda: None),
    ],
    ids=["watch", "control"],
)
def test_a_second_interrupt_ends_no_server_by_force(server: uvicorn.Server) -> None:
    """By force, the rest of the shutdown was skipped, and a traceback was the last that the verb printed."""
    server.handle_exit(signal.SIGINT, None)
    server.handle_exit(signal.SIGINT, None)
    assert server.should_exit
    assert not server.force_exit


class Connection(asyncio.Transport):
    """A connection with bytes that its browser does not take; uvicorn's protocol and its transport in one."""

    def __init__(self, server: uvicorn.Server, unread_bytes: int) -> None:
        super().__init__()
        self.transport = self
        self.unread_bytes = unread_bytes
        self.is_aborted = False
        self._connections = server.server_state.connections
        self._connections.add(self)  # type: ignore[arg-type]  # as much of one as is asked of it

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def abort(self) -> None:
        self.is_aborted = True
        self._connections.discard(self)

    def shutdown(self) -> None:
        """End idle connections: a connection that has all its bytes."""
        if not self.unread_bytes:
            self._connections.discard(self)


async def test_a_browser_that_does_not_read_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream blocked, was cancelled after seconds, and left a traceback in the terminal."""

    async def ended() -> None:
        pass

    monkeypatch.setattr(watch_server, "LAST_BYTES_SECONDS", 0)
    hub: Any = SimpleNamespace(close=ended)
    server = watch_server._Server(uvicorn.Config(_app, timeout_graceful_shutdown=5), hub=hub, teaching=None)
    lifespan: Any = SimpleNamespace(shutdown=ended)
    server.lifespan, server.servers = lifespan, []
    slow, quick = Connection(server, 1), Connection(server, 0)
    await server.shutdown(sockets=[])
    assert (slow.is_aborted, quick.is_aborted) == (True, False)
