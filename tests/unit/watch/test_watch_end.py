"""Ctrl-C at the two servers of the lab, pressed twice."""

from __future__ import annotations

import signal
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
    """By force, what is left to close was skipped, and a traceback was the last that the verb printed."""
    server.handle_exit(signal.SIGINT, None)
    server.handle_exit(signal.SIGINT, None)
    assert server.should_exit
    assert not server.force_exit
