"""KRaftVersionRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int16
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class KRaftVersionRecord:
    version: int = int16()
    kraft_version: int = int16()
