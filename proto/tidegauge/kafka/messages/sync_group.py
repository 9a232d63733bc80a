"""SyncGroup (key 14) of Kafka 3.9.1: versions 0-5, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = binary()


@dataclass(slots=True)
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: Sequence[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@dataclass(slots=True)
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = binary()
