"""The controller's requests to the other brokers: control requests, which only ZooKeeper mode has."""

from __future__ import annotations

from typing import assert_never

from tidegauge_broker.server.cluster.control_ways import ControlWay, GrpcWay, KafkaWay
from tidegauge_controller.zookeeper.control_links import OpenLink, grpc_links, kafka_links


def open_link_by(way: ControlWay) -> OpenLink:
    """Return what makes the links of the control plane."""
    match way:
        case GrpcWay():
            return grpc_links(way.open_channel, way.settings, way.logical_clock)
        case KafkaWay():
            return kafka_links(way.open_channel, way.settings, way.broker_id)
        case _:
            assert_never(way)
