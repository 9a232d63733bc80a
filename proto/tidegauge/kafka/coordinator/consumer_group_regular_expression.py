"""ConsumerGroupRegularExpression of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ConsumerGroupRegularExpressionKey:
    group_id: str = string("0")
    regular_expression: str = string("0")


@dataclass(slots=True)
class ConsumerGroupRegularExpressionValue:
    topics: Sequence[str] = array("string")
    version: int = int64()
    timestamp: int = int64()
