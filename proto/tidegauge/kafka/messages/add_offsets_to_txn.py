"""AddOffsetsToTxn (key 25) of Kafka 3.9.1: versions 0-4, flexible in 3+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@dataclass(slots=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
