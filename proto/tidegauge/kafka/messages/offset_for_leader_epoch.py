"""OffsetForLeaderEpoch (key 23) of Kafka 3.9.1: versions 0-4, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()


@dataclass(slots=True)
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: Sequence[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    replica_id: int = int32("3+", default=-2)
    topics: Sequence[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@dataclass(slots=True)
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64(default=-1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: Sequence[EpochEndOffset] = array(EpochEndOffset)


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32("2+")
    topics: Sequence[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
