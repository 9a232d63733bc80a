"""The listeners of a broker without the rest of it: limits, malformed requests, certificates.

No broker and no ZooKeeper is needed: gRPC servers as a broker makes them, with the health service alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from tests.certificates import Authority
from tests.handshakes import refused
from tests.waiting import until, until_async

from tidegauge.listeners import SSL, resolve_listeners
from tidegauge.logical_clock import LogicalClock
from tidegauge.secure_channels import open_channel, server_credentials
from tidegauge.security import security_of, security_of_files
from tidegauge_broker.server.service.pending_responses import PendingResponses
from tidegauge_broker.server.wire.grpc.servers import RpcServers
from tidegauge_broker.server.wire.limits import Limits
from tidegauge_client.bootstrap import BootstrapServers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
BOTH = ("PLAINTEXT:PLAINTEXT", "SSL:SSL")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@contextlib.asynccontextmanager
async def serving(port: int, limits: Limits, tls: grpc.ServerCredentials | None = None) -> AsyncIterator[RpcServers]:
    """A listener on the port."""
    name = "GRPC" if tls is None else "GRPC_SSL"
    servers = RpcServers(
        resolve_listeners(f"{name}://127.0.0.1:{port}", None, None, BOTH),
        limits,
        None if tls is None else lambda _: tls,
        lambda server, _: health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(), server),
        LogicalClock(lambda: 0),
        PendingResponses(lambda: 2**30, lambda: 2**30, lambda: 0.0),
    )
    await servers.start()
    try:
        yield servers
    finally:
        await servers.stop(None)


async def test_a_listener_takes_so_many_connections_and_then_new_ones_in_their_place(
    next_base_port: Callable[[], int],
) -> None:
    """max.connections: more are closed; when one goes, the next is taken."""
    port = next_base_port()

    async def is_taken() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        first = b""
        with contextlib.suppress(ConnectionError):
            first = await reader.read(9)
        writer.close()
        return bool(first)

    async with serving(port, Limits(1 << 20, connections=3)):
        taken = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, _ in taken:
            assert await reader.read(9), "the server's first frame"
        assert not await is_taken()
        taken[0][1].close()
        await until_async(is_taken, what="a new connection is taken in place of the one that went")
        for _, writer in taken[1:]:
            writer.close()


async def test_calls_above_the_limit_of_a_connection_wait_in_the_client(next_base_port: Callable[[], int]) -> None:
    """queued.max.requests, by connection."""
    port = next_base_port()
    own = (("grpc.use_local_subchannel_pool", 1),)
    async with (
        serving(port, Limits(1 << 20, calls_per_connection=2)),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", own) as channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", own) as other,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)  # the package ships no types
        endless = [stub.Watch(health_pb2.HealthCheckRequest(service="")) for _ in range(2)]
        for call in endless:
            await call.read()
        third = asyncio.ensure_future(stub.Check(health_pb2.HealthCheckRequest(service="")))
        other_stub: Any = health_pb2_grpc.HealthStub(other)
        await other_stub.Check(health_pb2.HealthCheckRequest(service=""))
        assert not third.done(), "another connection has calls of its own"
        endless[0].cancel()
        await asyncio.wait_for(third, 60)
        endless[1].cancel()


async def test_who_says_nothing_and_who_connects_too_often_is_dropped(
    next_base_port: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    """connections.max.idle.ms and max.connections.per.ip; another address of the machine stands in for a stranger."""
    caplog.set_level(logging.INFO)
    port = next_base_port()
    sentence = "Rejected connection from /127.0.0.2, address already has the configured maximum of 10 connections"

    def crowd(servers: RpcServers) -> None:
        with contextlib.ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, ("127.0.0.2", 0)))
                for _ in range(25)
            ]
            until(lambda: caplog.text.count(sentence) >= 15, what="the newest connections are closed")
            until(lambda: servers.connections.counts()["GRPC"] <= 10, what="gRPC has let them go")
            for one in silent:
                with contextlib.suppress(ConnectionError):
                    while one.recv(4096):
                        pass  # the broker's first frames, and then its end of the connection
        until(lambda: servers.connections.counts()["GRPC"] == 0, what="all are gone")

    async with serving(port, Limits(1 << 20, connections_per_ip=10, idle_ms=2_000)) as servers:
        await asyncio.to_thread(crowd, servers)


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
async def test_bytes_that_are_no_request_and_requests_that_are_too_large_are_refused(
    next_base_port: Callable[[], int], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """socket.request.max.bytes; and nothing of either in the log but a line."""
    port = next_base_port()
    path = {"unary_unary": "/grpc.health.v1.Health/Check", "unary_stream": "/grpc.health.v1.Health/Watch"}[kind]
    found = []
    async with serving(port, Limits(1 << 16)), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for data in (b"\xff" * 50, b"\x0b" * 20_000, bytes(1 << 17)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                call = getattr(channel, kind)(path)(data, timeout=60)
                await (call if kind == "unary_unary" else call.read())
            found.append((refused.value.code().name, refused.value.details()))
    assert [code for code, _ in found] == ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"]
    assert found[0][1] == "The request can't be read: it is no grpc.health.v1.HealthCheckRequest"
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("names", "days", "reported"),
    [
        ("DNS:elsewhere.example", 2, "certificate is not valid for 127.0.0.1"),
        ("IP:127.0.0.1", -1, "the broker's certificate has expired"),
        ("", 0, "the broker speaks plain text on this port"),
    ],
)
async def test_a_client_reports_what_is_wrong_with_the_broker(
    authority: Authority, next_base_port: Callable[[], int], names: str, days: int, reported: str
) -> None:
    port = next_base_port()
    tls = None
    if names:
        own = security_of({"ssl.keystore.location": str(authority.issue("bad", names, days=days).both)}, SSL)
        tls = server_credentials(own, needs_client_certificate=False)
    async with serving(port, Limits(1 << 20), tls):
        servers = BootstrapServers([f"127.0.0.1:{port}"], security_of_files("SSL", authority.certificate))
        assert reported in await refused(servers)


async def test_a_client_reports_what_the_broker_wants_of_it(
    authority: Authority, tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """TLS, a certificate, one that has not expired, one of the right authority; with the right one it is served."""
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    stranger = Authority(strangers, "stranger").issue("stranger")
    port = next_base_port()
    stores = {
        "ssl.keystore.location": str(authority.issue("broker").both),
        "ssl.truststore.location": str(authority.certificate),
    }
    tls = server_credentials(security_of(stores, SSL), needs_client_certificate=True)
    where = [f"127.0.0.1:{port}"]

    def showing(certificate: Path | None) -> BootstrapServers:
        return BootstrapServers(where, security_of_files("SSL", authority.certificate, certificate))

    async with serving(port, Limits(1 << 20), tls):
        assert "the broker speaks TLS on this port" in await refused(BootstrapServers(where))
        assert "wants a client certificate" in await refused(showing(None))
        expired = authority.issue("expired", days=-1)
        for certificate in (expired.both, stranger.both):
            assert "rejects this client's certificate" in await refused(showing(certificate))
        trusting = security_of_files("SSL", authority.certificate, authority.issue("client").both)
        async with open_channel(where[0], (), trusting) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=60)
