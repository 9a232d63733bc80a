"""LeaderAndIsr (key 4) of Kafka 3.9.1: versions 0-7, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int8, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class LeaderAndIsrPartitionState:
    topic_name: str = string("0-1")
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: Sequence[int] = array("int32")
    partition_epoch: int = int32()
    replicas: Sequence[int] = array("int32")
    adding_replicas: Sequence[int] = array("int32", "3+")
    removing_replicas: Sequence[int] = array("int32", "3+")
    is_new: bool = boolean("1+")
    leader_recovery_state: int = int8("6+")


@dataclass(slots=True)
class LeaderAndIsrTopicState:
    topic_name: str = string("2+")
    topic_id: bytes = uuid("5+")
    partition_states: Sequence[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


@dataclass(slots=True)
class LeaderAndIsrLiveLeader:
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


@dataclass(slots=True)
class LeaderAndIsrRequest:
    controller_id: int = int32()
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1)
    type: int = int8("5+")
    ungrouped_partition_states: Sequence[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1")
    topic_states: Sequence[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: Sequence[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


@dataclass(slots=True)
class LeaderAndIsrPartitionError:
    topic_name: str = string("0-4")
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class LeaderAndIsrTopicError:
    topic_id: bytes = uuid("5+")
    partition_errors: Sequence[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


@dataclass(slots=True)
class LeaderAndIsrResponse:
    error_code: int = int16()
    partition_errors: Sequence[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: Sequence[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")
