"""ShareGroupCurrentMemberAssignment of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int32, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = string("0")
    member_id: str = string("0")


@dataclass(slots=True)
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: Sequence[TopicPartitions] = array(TopicPartitions)
