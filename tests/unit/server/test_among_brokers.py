"""Which way brokers speak with each other, by their listeners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.listeners import GRPC, KAFKA
from tidegauge_broker.server.among_brokers import Apart, protocols_among_brokers

OVER_GRPC: Any = SimpleNamespace(to_brokers=lambda: "grpc", close=lambda: None)
OVER_KAFKA: Any = SimpleNamespace(to_brokers=lambda: "kafka", close=lambda: None)


def listeners(inter_broker_wire: str, control_plane: str) -> Any:
    """Listeners of a broker whose inter-broker listener is B."""
    return SimpleNamespace(inter_broker_wire=inter_broker_wire, inter_broker="B", control_plane=control_plane)


@pytest.mark.parametrize("control_plane", ["B", "C"])
def test_over_grpc_all_goes_over_grpc(control_plane: str) -> None:
    assert protocols_among_brokers(listeners(GRPC, control_plane), OVER_GRPC, OVER_KAFKA) is OVER_GRPC


def test_over_kafka_the_controller_has_a_way_of_its_own_with_a_listener_of_its_own() -> None:
    assert protocols_among_brokers(listeners(KAFKA, "B"), OVER_GRPC, OVER_KAFKA) is OVER_KAFKA
    apart = protocols_among_brokers(listeners(KAFKA, "C"), OVER_GRPC, OVER_KAFKA)
    assert isinstance(apart, Apart)
    assert apart.to_brokers() == "grpc"
