"""JoinGroup (key 11) of Kafka 3.9.1: versions 0-9, flexible in 6+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, boolean, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = binary()


@dataclass(slots=True)
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: Sequence[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


@dataclass(slots=True)
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = binary()


@dataclass(slots=True)
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: Sequence[JoinGroupResponseMember] = array(JoinGroupResponseMember)
