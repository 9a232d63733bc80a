"""Metadata (key 3) of Kafka 3.9.1: versions 0-12, flexible in 9+.

The versions up to 13 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class MetadataRequestTopic:
    topic_id: bytes = uuid("10+")
    name: str | None = string(nullable="10+")


@dataclass(slots=True)
class MetadataRequest:
    topics: Sequence[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@dataclass(slots=True)
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)


@dataclass(slots=True)
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: Sequence[int] = array("int32")
    isr_nodes: Sequence[int] = array("int32")
    offline_replicas: Sequence[int] = array("int32", "5+")


@dataclass(slots=True)
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: Sequence[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


@dataclass(slots=True)
class MetadataResponse:
    throttle_time_ms: int = int32("3+")
    brokers: Sequence[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: Sequence[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+")
