"""DescribeQuorum (key 55) of Kafka 4.3.1: versions 0-2, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, string, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionData:
    partition_index: int = int32()


@dataclass(slots=True)
class TopicData:
    topic_name: str = string()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class DescribeQuorumRequest:
    topics: Sequence[TopicData] = array(TopicData)


@dataclass(slots=True)
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@dataclass(slots=True)
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: Sequence[ReplicaState] = array(ReplicaState)
    observers: Sequence[ReplicaState] = array(ReplicaState)


@dataclass(slots=True)
class ResponseTopicData:
    topic_name: str = string()
    partitions: Sequence[ResponsePartitionData] = array(ResponsePartitionData)


@dataclass(slots=True)
class Listener:
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@dataclass(slots=True)
class Node:
    node_id: int = int32("2+")
    listeners: Sequence[Listener] = array(Listener, "2+")


@dataclass(slots=True)
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: Sequence[ResponseTopicData] = array(ResponseTopicData)
    nodes: Sequence[Node] = array(Node, "2+")
