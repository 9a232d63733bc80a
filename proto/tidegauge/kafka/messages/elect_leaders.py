"""ElectLeaders (key 43) of Kafka 3.9.1: versions 0-2, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class TopicPartitions:
    topic: str = string()
    partitions: Sequence[int] = array("int32")


@dataclass(slots=True)
class ElectLeadersRequest:
    election_type: int = int8("1+")
    topic_partitions: Sequence[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@dataclass(slots=True)
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@dataclass(slots=True)
class ReplicaElectionResult:
    topic: str = string()
    partition_result: Sequence[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: Sequence[ReplicaElectionResult] = array(ReplicaElectionResult)
