"""ControlledShutdown (key 7) of Kafka 3.9.1: versions 0-3, flexible in 3+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ControlledShutdownRequest:
    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1)


@dataclass(slots=True)
class RemainingPartition:
    topic_name: str = string()
    partition_index: int = int32()


@dataclass(slots=True)
class ControlledShutdownResponse:
    error_code: int = int16()
    remaining_partitions: Sequence[RemainingPartition] = array(RemainingPartition)
