"""FeatureLevelRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int16, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class FeatureLevelRecord:
    name: str = string()
    feature_level: int = int16()
