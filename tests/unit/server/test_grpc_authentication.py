"""Calls of gRPC listeners that ask who calls: what reaches a handler, as whom, and how the others end."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tidegauge.call_credentials import AUTHORIZATION
from tidegauge_broker.security.sasl.plain import PlainExchange
from tidegauge_broker.security.sasl.scram import ScramCredential
from tidegauge_broker.server.service.acting import ACTS_FOR
from tidegauge_broker.server.wire.grpc.authentication import by_credential
from tidegauge_broker.server.wire.grpc.callers import caller_of, host_of

SERVICE = "tidegauge.v1.BrokerService"


class Aborted(Exception):
    """The call has ended with a status."""


class Call:
    """A call's context."""

    def __init__(self, password: str | None = "alice-secret") -> None:  # noqa: S107 - the test's own
        value = base64.b64encode(f"alice:{password}".encode()).decode()
        self.metadata = () if password is None else ((AUTHORIZATION, f"Basic {value}"),)

    def invocation_metadata(self) -> Any:
        return self.metadata

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code.name, details)


class Sasl:
    """A listener with one user."""

    enabled = ("PLAIN",)
    delay_ms = 0

    def __init__(self, reauth_ms: int = 0) -> None:
        self.reauth_ms = reauth_ms

    def exchange(self, mechanism: str) -> PlainExchange:
        assert mechanism == "PLAIN"
        return PlainExchange({"alice": "alice-secret"})

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return None

    def iterations(self, mechanism: str) -> list[int]:
        return []

    def max_reauth_ms(self, mechanism: str) -> int:
        return self.reauth_ms


async def unary(request: Any, context: Any) -> Any:
    return request, str(caller_of(context, "L").principal)


def wrapped(handler: Any, sasl: Sasl | None = None, now: list[int] | None = None, service: str = SERVICE) -> Any:
    clock = [0] if now is None else now
    return by_credential(sasl or Sasl(), lambda: clock[0])(service, "M", handler)


async def in_a_call(coroutine: Any) -> Any:
    """Run in a task of its own, as gRPC does: what a call sets is not there afterwards."""
    return await asyncio.create_task(coroutine)


async def test_a_handler_sees_the_caller_and_the_next_call_is_another() -> None:
    handler = wrapped(grpc.unary_unary_rpc_method_handler(unary))
    assert await in_a_call(handler.unary_unary("request", Call())) == ("request", "User:alice")
    assert str(ACTS_FOR.get()) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("password", "words"), [(None, "the call has no credential"), ("wrong", "Invalid username or password")]
)
async def test_without_the_right_credential_no_handler_is_called(password: str | None, words: str) -> None:
    reached: list[Any] = []

    async def handle(request: Any, context: Any) -> None:
        reached.append(request)

    handler = wrapped(grpc.unary_unary_rpc_method_handler(handle))
    with pytest.raises(Aborted, match=f"UNAUTHENTICATED.*{words}"):
        await in_a_call(handler.unary_unary("request", Call(password)))
    assert not reached


async def test_a_refusal_is_a_line_in_the_log_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    handler = wrapped(grpc.unary_unary_rpc_method_handler(unary))
    with pytest.raises(Aborted):
        await in_a_call(handler.unary_unary("request", Call("not-the-secret")))
    said = "Failed authentication with /10.0.0.1 (Authentication failed: Invalid username or password)"
    assert caplog.messages == [said]


async def test_health_is_open_to_all() -> None:
    handler = grpc.unary_unary_rpc_method_handler(unary)
    assert wrapped(handler, service="grpc.health.v1.Health") is handler


async def echo(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
    async for request in requests:
        yield request, str(caller_of(context, "L").principal)
    yield "the last", ""


async def test_a_stream_lasts_as_long_as_its_session_and_what_came_before_is_responded_to() -> None:
    """KIP-368: the connection is closed; here the stream, and the client opens another."""
    now = [1_000]

    async def requests() -> AsyncIterator[int]:
        for number in range(3):
            yield number
            now[0] += 400

    handler = wrapped(grpc.stream_stream_rpc_method_handler(echo), Sasl(reauth_ms=500), now)
    got: list[Any] = []

    async def call() -> None:
        async for response in handler.stream_stream(requests(), Call()):
            got.append(response)  # noqa: PERF401 - what came before the end is looked at

    with pytest.raises(Aborted, match=r"UNAVAILABLE.*has ended"):
        await in_a_call(call())
    assert got == [(0, "User:alice"), (1, "User:alice"), ("the last", "")]


async def test_a_stream_without_a_limit_ends_by_itself() -> None:
    async def requests() -> AsyncIterator[int]:
        yield 1

    handler = wrapped(grpc.stream_stream_rpc_method_handler(echo))

    async def call() -> list[Any]:
        return [response async for response in handler.stream_stream(requests(), Call())]

    assert await in_a_call(call()) == [(1, "User:alice"), ("the last", "")]


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "0:0:0:0:0:0:0:1"),
        ("ipv6:[fe80::1]:5000", "fe80:0:0:0:0:0:0:1"),
        ("unix:/tmp/x", "?"),
    ],
)
def test_a_callers_host_is_its_address_without_the_port(peer: str, host: str) -> None:
    assert host_of(peer) == host
