"""OffsetDelete (key 47) of Kafka 3.9.1: versions 0, never flexible.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: Sequence[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@dataclass(slots=True)
class OffsetDeleteRequest:
    group_id: str = string()
    topics: Sequence[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: Sequence[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@dataclass(slots=True)
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: Sequence[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
