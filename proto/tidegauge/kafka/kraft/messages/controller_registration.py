"""ControllerRegistration (key 70) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@dataclass(slots=True)
class Feature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(slots=True)
class ControllerRegistrationRequest:
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: Sequence[Listener] = array(Listener)
    features: Sequence[Feature] = array(Feature)


@dataclass(slots=True)
class ControllerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
