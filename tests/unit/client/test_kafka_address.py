"""Every verb takes a Kafka address: the broker's own settings name its gRPC listener (KIP-103, DescribeConfigs)."""

from __future__ import annotations

import pytest

from tidegauge_client.kafka_address import named_in


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
