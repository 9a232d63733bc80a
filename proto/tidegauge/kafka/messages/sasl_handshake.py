"""SaslHandshake (key 17) of Kafka 3.9.1: versions 0-1, never flexible.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class SaslHandshakeRequest:
    mechanism: str = string()


@dataclass(slots=True)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: Sequence[str] = array("string")
