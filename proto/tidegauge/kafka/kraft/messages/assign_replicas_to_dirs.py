"""AssignReplicasToDirs (key 73) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionData:
    partition_index: int = int32()


@dataclass(slots=True)
class TopicData:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class DirectoryData:
    id: bytes = uuid()
    topics: Sequence[TopicData] = array(TopicData)


@dataclass(slots=True)
class AssignReplicasToDirsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: Sequence[DirectoryData] = array(DirectoryData)


@dataclass(slots=True)
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class ResponseTopicData:
    topic_id: bytes = uuid()
    partitions: Sequence[ResponsePartitionData] = array(ResponsePartitionData)


@dataclass(slots=True)
class ResponseDirectoryData:
    id: bytes = uuid()
    topics: Sequence[ResponseTopicData] = array(ResponseTopicData)


@dataclass(slots=True)
class AssignReplicasToDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: Sequence[ResponseDirectoryData] = array(ResponseDirectoryData)
