"""ConsumerGroupMetadata of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ConsumerGroupMetadataKey:
    group_id: str = string("0")


@dataclass(slots=True)
class ConsumerGroupMetadataValue:
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)
