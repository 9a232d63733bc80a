"""AlterShareGroupOffsets (key 91) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = int32()
    start_offset: int = int64()


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


@dataclass(slots=True)
class AlterShareGroupOffsetsRequest:
    group_id: str = string()
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)
