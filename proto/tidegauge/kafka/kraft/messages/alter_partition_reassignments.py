"""AlterPartitionReassignments (key 45) of Kafka 4.3.1: versions 0-1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ReassignablePartition:
    partition_index: int = int32()
    replicas: Sequence[int] | None = array("int32", nullable="0+", default=None)


@dataclass(slots=True)
class ReassignableTopic:
    name: str = string()
    partitions: Sequence[ReassignablePartition] = array(ReassignablePartition)


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: Sequence[ReassignableTopic] = array(ReassignableTopic)


@dataclass(slots=True)
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@dataclass(slots=True)
class ReassignableTopicResponse:
    name: str = string()
    partitions: Sequence[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: Sequence[ReassignableTopicResponse] = array(ReassignableTopicResponse)
