"""ConsumerGroupPartitionMetadata of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int32, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ConsumerGroupPartitionMetadataKey:
    group_id: str = string("0")


@dataclass(slots=True)
class PartitionMetadata:
    partition: int = int32()
    racks: Sequence[str] = array("string")


@dataclass(slots=True)
class TopicMetadata:
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: Sequence[PartitionMetadata] = array(PartitionMetadata)


@dataclass(slots=True)
class ConsumerGroupPartitionMetadataValue:
    topics: Sequence[TopicMetadata] = array(TopicMetadata)
