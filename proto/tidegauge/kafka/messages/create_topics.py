"""CreateTopics (key 19) of Kafka 3.9.1: versions 0-7, flexible in 5+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int8, int16, int32, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: Sequence[int] = array("int32")


@dataclass(slots=True)
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@dataclass(slots=True)
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: Sequence[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: Sequence[CreatableTopicConfig] = array(CreatableTopicConfig)


@dataclass(slots=True)
class CreateTopicsRequest:
    topics: Sequence[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


@dataclass(slots=True)
class CreatableTopicConfigs:
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


@dataclass(slots=True)
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: Sequence[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


@dataclass(slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int = int32("2+")
    topics: Sequence[CreatableTopicResult] = array(CreatableTopicResult)
