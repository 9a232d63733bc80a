"""RegisterControllerRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ControllerEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@dataclass(slots=True)
class ControllerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(slots=True)
class RegisterControllerRecord:
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: Sequence[ControllerEndpoint] = array(ControllerEndpoint)
    features: Sequence[ControllerFeature] = array(ControllerFeature)
