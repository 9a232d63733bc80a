"""UnfenceBrokerRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int32, int64
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class UnfenceBrokerRecord:
    id: int = int32()
    epoch: int = int64()
