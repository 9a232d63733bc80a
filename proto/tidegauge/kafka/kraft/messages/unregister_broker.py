"""UnregisterBroker (key 64) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class UnregisterBrokerRequest:
    broker_id: int = int32()


@dataclass(slots=True)
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
