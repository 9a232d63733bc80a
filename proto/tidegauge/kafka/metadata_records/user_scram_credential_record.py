"""UserScramCredentialRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import binary, int8, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class UserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()
