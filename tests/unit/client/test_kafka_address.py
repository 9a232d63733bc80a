"""Every verb takes a Kafka address: the broker's own settings name its gRPC listener (KIP-103, DescribeConfigs)."""

from __future__ import annotations

import pytest

from tidegauge.security import PLAIN
from tidegauge_client import kafka_address
from tidegauge_client.kafka_address import grpc_addresses, named_in

NAMED = "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT"


@pytest.mark.parametrize(
    ("settings", "host", "expected"),
    [
        (
            {"listeners": "PLAINTEXT://127.0.0.1:9092,GRPC://127.0.0.1:19092", "advertised.listeners": None},
            "127.0.0.1",
            ["127.0.0.1:19092"],
        ),
        ({"listeners": "PLAINTEXT://127.0.0.1:9093"}, "127.0.0.1", ["127.0.0.1:19093"]),
        (
            {
                "listeners": "KAFKA://:9092,INNER://:19092,OUTER://:19192",
                "advertised.listeners": "KAFKA://127.0.0.1:9092,INNER://broker-0:19092,OUTER://127.0.0.1:29092",
                "inter.broker.listener.name": "INNER",
                "listener.wire.protocol.map": "INNER:GRPC, OUTER:GRPC",
            },
            "127.0.0.1",
            ["127.0.0.1:29092", "broker-0:19092"],
        ),
    ],
)
def test_the_grpc_addresses_are_those_that_the_settings_advertise_the_reached_host_first(settings, host, expected):
    assert named_in(settings, host) == expected


async def test_an_ipv6_host_that_is_reached_is_compared_without_brackets(monkeypatch):
    """Its own address comes first; both settings and clients write it in brackets."""
    listeners = "PLAINTEXT://[::1]:9092,A://127.0.0.1:1,B://[::1]:2"
    settings = {
        "listeners": listeners,
        "listener.wire.protocol.map": "A:GRPC,B:GRPC",
        "listener.security.protocol.map": NAMED,
    }

    async def own_settings(_channel):
        return settings

    monkeypatch.setattr(kafka_address, "_own_settings", own_settings)
    assert await grpc_addresses("[::1]:9092", PLAIN) == ["[::1]:2", "127.0.0.1:1"]
    assert await grpc_addresses("127.0.0.1:9092", PLAIN) == ["127.0.0.1:1", "[::1]:2"]
