"""DescribeShareGroupOffsets (key 90) of Kafka 4.3.1: versions 0-1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = string()
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequest:
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = string()
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
