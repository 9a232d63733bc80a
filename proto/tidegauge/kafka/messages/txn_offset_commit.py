"""TxnOffsetCommit (key 28) of Kafka 3.9.1: versions 0-4, flexible in 3+.

The versions up to 5 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: Sequence[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@dataclass(slots=True)
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: Sequence[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@dataclass(slots=True)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: Sequence[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
