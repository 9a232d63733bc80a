"""ProducerIdsRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int32, int64
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ProducerIdsRecord:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()
