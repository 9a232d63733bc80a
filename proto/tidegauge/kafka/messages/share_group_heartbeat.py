"""ShareGroupHeartbeat (key 76) of Kafka 4.3.1: versions 1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string, struct, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ShareGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: Sequence[str] | None = array("string", nullable="0+", default=None)


@dataclass(slots=True)
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class Assignment:
    topic_partitions: Sequence[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+")
