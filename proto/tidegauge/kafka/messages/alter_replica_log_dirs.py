"""AlterReplicaLogDirs (key 34) of Kafka 3.9.1: versions 0-2, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class AlterReplicaLogDir:
    path: str = string()
    topics: Sequence[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    dirs: Sequence[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32()
    results: Sequence[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
