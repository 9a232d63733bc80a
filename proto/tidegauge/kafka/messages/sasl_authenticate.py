"""SaslAuthenticate (key 36) of Kafka 3.9.1: versions 0-2, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import binary, int16, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = binary()


@dataclass(slots=True)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+")
