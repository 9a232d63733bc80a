"""ListPartitionReassignments (key 46) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: Sequence[int] = array("int32")


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@dataclass(slots=True)
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: Sequence[int] = array("int32")
    adding_replicas: Sequence[int] = array("int32")
    removing_replicas: Sequence[int] = array("int32")


@dataclass(slots=True)
class OngoingTopicReassignment:
    name: str = string()
    partitions: Sequence[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: Sequence[OngoingTopicReassignment] = array(OngoingTopicReassignment)
