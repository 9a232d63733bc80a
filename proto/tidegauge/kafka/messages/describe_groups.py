"""DescribeGroups (key 15) of Kafka 3.9.1: versions 0-5, flexible in 5+.

The versions up to 6 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, boolean, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DescribeGroupsRequest:
    groups: Sequence[str] = array("string")
    include_authorized_operations: bool = boolean("3+")


@dataclass(slots=True)
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: Sequence[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


@dataclass(slots=True)
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: Sequence[DescribedGroup] = array(DescribedGroup)
