"""Heartbeat (key 12) of Kafka 3.9.1: versions 0-4, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@dataclass(slots=True)
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
