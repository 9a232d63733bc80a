"""Envelope (key 58) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import binary, int16
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class EnvelopeRequest:
    request_data: bytes = binary()
    request_principal: bytes | None = binary(nullable="0+")
    client_host_address: bytes = binary()


@dataclass(slots=True)
class EnvelopeResponse:
    response_data: bytes | None = binary(nullable="0+", default=None)
    error_code: int = int16()
