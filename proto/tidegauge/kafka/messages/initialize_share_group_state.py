"""InitializeShareGroupState (key 83) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionData:
    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


@dataclass(slots=True)
class InitializeStateData:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class InitializeShareGroupStateRequest:
    group_id: str = string()
    topics: Sequence[InitializeStateData] = array(InitializeStateData)


@dataclass(slots=True)
class PartitionResult:
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class InitializeStateResult:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class InitializeShareGroupStateResponse:
    results: Sequence[InitializeStateResult] = array(InitializeStateResult)
