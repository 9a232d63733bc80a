"""ConsumerGroupTargetAssignmentMember of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = string("0")
    member_id: str = string("0")


@dataclass(slots=True)
class TopicPartition:
    topic_id: bytes = uuid()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: Sequence[TopicPartition] = array(TopicPartition)
