"""AlterPartition (key 56) of Kafka 4.3.1: versions 2-3, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, int64, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class BrokerState:
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


@dataclass(slots=True)
class PartitionData:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: Sequence[int] = array("int32", "0-2")
    new_isr_with_epochs: Sequence[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


@dataclass(slots=True)
class TopicData:
    topic_id: bytes = uuid("2+")
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class AlterPartitionRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: Sequence[TopicData] = array(TopicData)


@dataclass(slots=True)
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: Sequence[int] = array("int32")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


@dataclass(slots=True)
class ResponseTopicData:
    topic_id: bytes = uuid("2+")
    partitions: Sequence[ResponsePartitionData] = array(ResponsePartitionData)


@dataclass(slots=True)
class AlterPartitionResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: Sequence[ResponseTopicData] = array(ResponseTopicData)
