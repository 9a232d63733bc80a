"""The ways by which a controller's requests reach brokers: what opens a connection, and what its requests need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc.aio

from tidegauge.kafka_channel import KafkaChannel
from tidegauge.logical_clock import LogicalClock
from tidegauge.settings import Values


@dataclass(frozen=True, slots=True)
class GrpcWay:
    """Over gRPC.

    Attributes:
        open_channel: opens a channel to an address.
        settings: of this broker.
        logical_clock: goes with requests, and is advanced by responses.
    """

    open_channel: Callable[[str], grpc.aio.Channel]
    settings: Values
    logical_clock: LogicalClock


@dataclass(frozen=True, slots=True)
class KafkaWay:
    """Over Kafka's own protocol.

    Attributes:
        open_channel: opens a channel to an address, for a client id.
        settings: of this broker.
        broker_id: this broker.
    """

    open_channel: Callable[[str, str], KafkaChannel]
    settings: Values
    broker_id: int


ControlWay = GrpcWay | KafkaWay
