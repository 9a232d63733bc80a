"""Hosts of IPv6 connections, in the form in which Kafka compares them with access lists, quotas and limits."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_peer import Client, Listener, Transport
from tests.waiting import until_async

from tidegauge.kafka_channel import Dialer
from tidegauge.listeners import Listener as Address
from tidegauge.v1 import metadata_pb2
from tidegauge_broker.server.configs.address_quotas import _addresses
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots
from tidegauge_broker.server.wire.grpc.connections import Connections
from tidegauge_broker.server.wire.kafka.acceptor import Acceptor
from tidegauge_lab.labs import kafka_addresses
from tidegauge_spark.cluster_metadata import ClusterMetadata

LOOPBACK = "0:0:0:0:0:0:0:1"


def listening() -> socket.socket:
    try:
        return socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as problem:
        pytest.skip(f"this machine has no IPv6: {problem.strerror}")


class Ipv6Transport(Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("fe80::1", 5, 0, 2) if name == "peername" else super().get_extra_info(name, default)


async def test_the_caller_of_a_kafka_connection_has_javas_form() -> None:
    """InetAddress.getHostAddress: RequestContext.clientAddress is compared with the hosts of access lists."""
    assert Client(Listener(), Ipv6Transport()).connection.caller.host == "fe80:0:0:0:0:0:0:1%2"


async def test_a_grpc_connection_is_closed_by_the_name_that_grpc_gives_it() -> None:
    """An IPv6 host has brackets, escaped."""
    with listening() as server, contextlib.ExitStack() as stack:
        port = server.getsockname()[1]
        client = stack.enter_context(socket.create_connection(("::1", port)))
        stack.enter_context(server.accept()[0])
        connections = Connections({port: "GRPC"}, 1)
        own_port = client.getsockname()[1]
        connections.close_peer(f"ipv6:%5B::1%5D:{own_port + 1}")
        client.settimeout(0.01)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(10)
        connections.close_peer(f"ipv6:%5B::1%5D:{own_port}")
        assert client.recv(1) == b""


async def test_a_grpc_connection_above_the_limit_is_logged_with_javas_form(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with listening() as server, contextlib.ExitStack() as stack:
        port = server.getsockname()[1]
        connections = Connections({port: "GRPC"}, 1)
        for _ in range(2):
            stack.enter_context(socket.create_connection(("::1", port)))
            stack.enter_context(server.accept()[0])
        await connections.hold_limit()
    assert f"Rejected connection from /{LOOPBACK}, address already has" in caplog.text


async def test_the_rate_of_an_address_is_that_of_javas_form() -> None:
    """ConnectionQuotas.recordIpConnectionMaybeThrottle."""
    asked: list[str] = []

    class Rates:
        def accepted(self, _listener: str, _now_ms: int) -> int:
            return 0

        def refused(self, _listener: str, address: str, _now_ms: int) -> int:
            asked.append(address)
            return 0

    with listening() as free:
        port = free.getsockname()[1]
    at = Address("PLAINTEXT", "::1", port)
    rates: Any = Rates()
    acceptor = Acceptor(at, None, rates, ConnectionSlots(), lambda: 5, asyncio.Protocol)
    await acceptor.start()
    _, writer = await asyncio.open_connection("::1", port)

    async def is_asked() -> bool:
        return bool(asked)

    await until_async(is_asked)
    writer.transport.abort()
    await acceptor.stop()
    assert asked == [LOOPBACK]


async def test_a_quota_of_an_address_is_that_of_its_connections() -> None:
    assert await _addresses("::1") == [LOOPBACK]
    assert await _addresses("127.0.0.1") == ["127.0.0.1"]


async def test_an_address_in_brackets_is_dialled_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[tuple[str, int]] = []

    async def connect(_protocol: Any, host: str, port: int, **_: Any) -> tuple[None, None]:
        dialled.append((host, port))
        return None, None

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    made: Any = object
    await Dialer()("[::1]:9092", made)
    assert dialled == [("::1", 9092)]


def test_spark_dials_a_broker_on_an_ipv6_host() -> None:
    metadata, response = ClusterMetadata(), metadata_pb2.MetadataResponse()
    response.brokers.add(broker_id=1, host="::1", port=9)
    metadata.learn(response)
    assert metadata.addresses == {1: "[::1]:9"}


async def test_a_lab_tries_the_addresses_that_ipv6_brokers_advertise(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def respond(address: str) -> Any:
        tried.append(address)
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=0, host="::1", port=9092)], cluster_id="c")

    monkeypatch.setattr(kafka_addresses, "_metadata", respond)
    entry = SimpleNamespace(kafka_listener="127.0.0.1:9092", kafka_port=9092)
    file: Any = SimpleNamespace(broker=lambda _: entry)
    found = await kafka_addresses.advertised(file, [0])
    assert tried == ["127.0.0.1:9092", "[::1]:9092"]
    assert found.addresses == {0: "[::1]:9092"}
