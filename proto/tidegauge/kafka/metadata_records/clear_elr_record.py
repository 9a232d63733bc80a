"""ClearElrRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ClearElrRecord:
    topic_name: str = string()
