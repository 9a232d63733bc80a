"""DeleteRecords (key 21) of Kafka 3.9.1: versions 0-2, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@dataclass(slots=True)
class DeleteRecordsTopic:
    name: str = string()
    partitions: Sequence[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@dataclass(slots=True)
class DeleteRecordsRequest:
    topics: Sequence[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: Sequence[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@dataclass(slots=True)
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: Sequence[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
