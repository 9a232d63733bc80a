"""ReadShareGroupState (key 84) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionData:
    partition: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class ReadStateData:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class ReadShareGroupStateRequest:
    group_id: str = string()
    topics: Sequence[ReadStateData] = array(ReadStateData)


@dataclass(slots=True)
class StateBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@dataclass(slots=True)
class PartitionResult:
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: Sequence[StateBatch] = array(StateBatch)


@dataclass(slots=True)
class ReadStateResult:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class ReadShareGroupStateResponse:
    results: Sequence[ReadStateResult] = array(ReadStateResult)
