"""ShareGroupDescribe (key 77) of Kafka 4.3.1: versions 1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string, struct, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ShareGroupDescribeRequest:
    group_ids: Sequence[str] = array("string")
    include_authorized_operations: bool = boolean()


@dataclass(slots=True)
class TopicPartitions:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class Assignment:
    topic_partitions: Sequence[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True)
class Member:
    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array("string")
    assignment: Assignment | None = struct(Assignment)


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: Sequence[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@dataclass(slots=True)
class ShareGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: Sequence[DescribedGroup] = array(DescribedGroup)
