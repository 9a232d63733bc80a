"""AllocateProducerIds (key 67) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int16, int32, int64
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AllocateProducerIdsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@dataclass(slots=True)
class AllocateProducerIdsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
