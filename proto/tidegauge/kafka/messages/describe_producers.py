"""DescribeProducers (key 61) of Kafka 3.9.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class TopicRequest:
    name: str = string()
    partition_indexes: Sequence[int] = array("int32")


@dataclass(slots=True)
class DescribeProducersRequest:
    topics: Sequence[TopicRequest] = array(TopicRequest)


@dataclass(slots=True)
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@dataclass(slots=True)
class PartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: Sequence[ProducerState] = array(ProducerState)


@dataclass(slots=True)
class TopicResponse:
    name: str = string()
    partitions: Sequence[PartitionResponse] = array(PartitionResponse)


@dataclass(slots=True)
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: Sequence[TopicResponse] = array(TopicResponse)
