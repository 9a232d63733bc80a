"""DelegationTokenRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DelegationTokenRecord:
    owner: str = string()
    requester: str = string()
    renewers: Sequence[str] = array("string")
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()
