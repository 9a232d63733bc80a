"""Limits on connections (docs/security.md): which are closed, and what the broker's log says of failed handshakes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tidegauge.settings import INT_MAX, parse_broker_settings
from tidegauge_broker.server.wire.grpc.connections import Connections
from tidegauge_broker.server.wire.grpc.native_log import LOG_AGAIN_SECONDS, LoggedReasons
from tidegauge_broker.server.wire.grpc.servers import grpc_options
from tidegauge_broker.server.wire.limits import Limits


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


async def test_the_oldest_connections_of_an_address_stay(listening: socket.socket) -> None:
    """max.connections.per.ip: connections above it are shut down, and the descriptor stays its owner's."""
    port = listening.getsockname()[1]
    connections = Connections({port: "PLAINTEXT"}, 2)
    with contextlib.ExitStack() as stack:
        pairs = []
        for _ in range(4):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            pairs.append((client, stack.enter_context(listening.accept()[0])))
            await connections.hold_limit()
        for client, accepted in pairs[:2]:
            accepted.sendall(b"x")
            assert client.recv(1) == b"x"
        for client, _ in pairs[2:]:
            assert client.recv(1) == b""


async def test_connections_are_counted_by_listener_and_others_are_not(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    connections = Connections({port: "SSL", 1: "PLAINTEXT"}, INT_MAX)
    connections.watch()  # without a limit it does nothing
    assert connections.counts() == {"SSL": 0, "PLAINTEXT": 0}
    with socket.create_connection(("127.0.0.1", port)), listening.accept()[0]:
        assert connections.counts() == {"SSL": 1, "PLAINTEXT": 0}
    assert connections.counts() == {"SSL": 0, "PLAINTEXT": 0}
    await connections.close()


def idle_ms_of(text: str) -> int:
    return Limits.of(parse_broker_settings({"connections.max.idle.ms": text})[0]).idle_ms


def test_limits_have_kafkas_names_and_defaults() -> None:
    values, _ = parse_broker_settings({})
    assert Limits.of(values) == (104_857_600, INT_MAX, INT_MAX, 600_000, 500)
    assert "grpc.max_allowed_incoming_connections" not in dict(grpc_options(Limits.of(values)))
    assert [idle_ms_of(text) for text in ("-1", "0", "1", "2000")] == [INT_MAX, 1, 1, 2000], "-1 is Kafka's never"
    values, _ = parse_broker_settings({"max.connections": "7", "connections.max.idle.ms": str(2**40)})
    options = dict(grpc_options(Limits.of(values)))
    assert options["grpc.max_allowed_incoming_connections"] == 7
    assert options["grpc.max_connection_idle_ms"] == INT_MAX


def test_a_client_that_fails_again_and_again_is_logged_once_and_counted() -> None:
    logged = LoggedReasons()
    assert logged.sentence("why", 0.0) == "Failed authentication (SSL handshake failed): why"
    assert logged.sentence("why", 1.0) is None
    assert logged.sentence("other", 1.0) is not None
    assert logged.sentence("why", 2.0) is None
    again = logged.sentence("why", LOG_AGAIN_SECONDS)
    assert again == "Failed authentication (SSL handshake failed) (2 more since the last time): why"
