"""ShareGroupStatePartitionMetadata of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ShareGroupStatePartitionMetadataKey:
    group_id: str = string("0")


@dataclass(slots=True)
class TopicPartitionsInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class TopicInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()


@dataclass(slots=True)
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: Sequence[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: Sequence[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: Sequence[TopicInfo] = array(TopicInfo)
