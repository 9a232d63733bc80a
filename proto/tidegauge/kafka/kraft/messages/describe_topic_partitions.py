"""DescribeTopicPartitions (key 75) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string, struct, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class TopicRequest:
    name: str = string()


@dataclass(slots=True)
class Cursor:
    topic_name: str = string()
    partition_index: int = int32()


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    topics: Sequence[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+")


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: Sequence[int] = array("int32")
    isr_nodes: Sequence[int] = array("int32")
    eligible_leader_replicas: Sequence[int] | None = array("int32", nullable="0+", default=None)
    last_known_elr: Sequence[int] | None = array("int32", nullable="0+", default=None)
    offline_replicas: Sequence[int] = array("int32")


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648)


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+")
