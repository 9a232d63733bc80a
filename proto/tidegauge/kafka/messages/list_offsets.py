"""ListOffsets (key 2) of Kafka 3.9.1: versions 0-9, flexible in 6+.

The versions up to 11 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


@dataclass(slots=True)
class ListOffsetsTopic:
    name: str = string()
    partitions: Sequence[ListOffsetsPartition] = array(ListOffsetsPartition)


@dataclass(slots=True)
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: Sequence[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: Sequence[int] = array("int64", "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: Sequence[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@dataclass(slots=True)
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: Sequence[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
