"""DeleteShareGroupState (key 86) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionData:
    partition: int = int32()


@dataclass(slots=True)
class DeleteStateData:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class DeleteShareGroupStateRequest:
    group_id: str = string()
    topics: Sequence[DeleteStateData] = array(DeleteStateData)


@dataclass(slots=True)
class PartitionResult:
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class DeleteStateResult:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class DeleteShareGroupStateResponse:
    results: Sequence[DeleteStateResult] = array(DeleteStateResult)
