"""OffsetCommit (key 8) of Kafka 3.9.1: versions 0-9, flexible in 8+.

The versions up to 10 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: Sequence[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@dataclass(slots=True)
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: Sequence[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: Sequence[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@dataclass(slots=True)
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+")
    topics: Sequence[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
