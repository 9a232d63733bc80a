"""AccessControlEntryRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int8, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AccessControlEntryRecord:
    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()
