"""RegisterBrokerRecord of Kafka 4.3.1: versions 0-4, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class BrokerEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@dataclass(slots=True)
class BrokerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(slots=True)
class RegisterBrokerRecord:
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: Sequence[BrokerEndpoint] = array(BrokerEndpoint)
    features: Sequence[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: Sequence[bytes] = array("uuid", "3+", tag=0)
    cordoned_log_dirs: Sequence[bytes] | None = array("uuid", "4+", nullable="4+", default=None, tag=1)
