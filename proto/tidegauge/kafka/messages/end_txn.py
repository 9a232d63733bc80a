"""EndTxn (key 26) of Kafka 3.9.1: versions 0-4, flexible in 3+.

The versions up to 5 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import boolean, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@dataclass(slots=True)
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
