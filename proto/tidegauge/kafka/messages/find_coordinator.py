"""FindCoordinator (key 10) of Kafka 3.9.1: versions 0-6, flexible in 3+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class FindCoordinatorRequest:
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: Sequence[str] = array("string", "4+")


@dataclass(slots=True)
class Coordinator:
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


@dataclass(slots=True)
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: Sequence[Coordinator] = array(Coordinator, "4+")
