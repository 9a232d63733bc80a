"""CreatePartitions (key 37) of Kafka 3.9.1: versions 0-3, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class CreatePartitionsAssignment:
    broker_ids: Sequence[int] = array("int32")


@dataclass(slots=True)
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: Sequence[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@dataclass(slots=True)
class CreatePartitionsRequest:
    topics: Sequence[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: Sequence[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
