"""StopReplica (key 5) of Kafka 3.9.1: versions 0-4, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class StopReplicaPartitionV0:
    topic_name: str = string("0")
    partition_index: int = int32("0")


@dataclass(slots=True)
class StopReplicaTopicV1:
    name: str = string("1-2")
    partition_indexes: Sequence[int] = array("int32", "1-2")


@dataclass(slots=True)
class StopReplicaPartitionState:
    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


@dataclass(slots=True)
class StopReplicaTopicState:
    topic_name: str = string("3+")
    partition_states: Sequence[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


@dataclass(slots=True)
class StopReplicaRequest:
    controller_id: int = int32()
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: Sequence[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: Sequence[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: Sequence[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


@dataclass(slots=True)
class StopReplicaPartitionError:
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class StopReplicaResponse:
    error_code: int = int16()
    partition_errors: Sequence[StopReplicaPartitionError] = array(StopReplicaPartitionError)
