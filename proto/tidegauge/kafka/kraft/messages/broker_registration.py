"""BrokerRegistration (key 62) of Kafka 4.3.1: versions 0-4, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string, uint16, uuid
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
class BrokerRegistrationRequest:
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: Sequence[Listener] = array(Listener)
    features: Sequence[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: Sequence[bytes] = array("uuid", "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


@dataclass(slots=True)
class BrokerRegistrationResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
