"""AbortTransactionRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.kafka.fields import string


@dataclass(slots=True)
class AbortTransactionRecord:
    reason: str | None = string(nullable="0+", default=None, tag=0)
