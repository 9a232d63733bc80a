"""ExpireDelegationToken (key 40) of Kafka 3.9.1: versions 0-2, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import binary, int16, int32, int64
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ExpireDelegationTokenRequest:
    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


@dataclass(slots=True)
class ExpireDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
