"""ConsumerGroupHeartbeat (key 68) of Kafka 4.3.1: versions 0-1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string, struct, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: Sequence[str] | None = array("string", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: Sequence[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


@dataclass(slots=True)
class Assignment:
    topic_partitions: Sequence[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+")
