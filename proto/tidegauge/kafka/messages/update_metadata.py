"""UpdateMetadata (key 6) of Kafka 3.9.1: versions 0-8, flexible in 6+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int8, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class UpdateMetadataPartitionState:
    topic_name: str = string("0-4")
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: Sequence[int] = array("int32")
    zk_version: int = int32()
    replicas: Sequence[int] = array("int32")
    offline_replicas: Sequence[int] = array("int32", "4+")


@dataclass(slots=True)
class UpdateMetadataTopicState:
    topic_name: str = string("5+")
    topic_id: bytes = uuid("7+")
    partition_states: Sequence[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


@dataclass(slots=True)
class UpdateMetadataEndpoint:
    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+")
    security_protocol: int = int16("1+")


@dataclass(slots=True)
class UpdateMetadataBroker:
    id: int = int32()
    v0_host: str = string("0")
    v0_port: int = int32("0")
    endpoints: Sequence[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+")
    rack: str | None = string("2+", nullable="0+")


@dataclass(slots=True)
class UpdateMetadataRequest:
    controller_id: int = int32()
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1)
    ungrouped_partition_states: Sequence[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "0-4")
    topic_states: Sequence[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: Sequence[UpdateMetadataBroker] = array(UpdateMetadataBroker)


@dataclass(slots=True)
class UpdateMetadataResponse:
    error_code: int = int16()
