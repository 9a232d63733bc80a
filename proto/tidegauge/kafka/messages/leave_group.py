"""LeaveGroup (key 13) of Kafka 3.9.1: versions 0-5, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class MemberIdentity:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


@dataclass(slots=True)
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2")
    members: Sequence[MemberIdentity] = array(MemberIdentity, "3+")


@dataclass(slots=True)
class MemberResponse:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@dataclass(slots=True)
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: Sequence[MemberResponse] = array(MemberResponse, "3+")
