"""Produce (key 0) of Kafka 3.9.1: versions 0-11, flexible in 9+.

The versions up to 13 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, records, string, struct, uuid
from tidegauge.kafka.records import Records
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionProduceData:
    index: int = int32()
    records: Records | None = records(nullable="0+")


@dataclass(slots=True)
class TopicProduceData:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: Sequence[PartitionProduceData] = array(PartitionProduceData)


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: Sequence[TopicProduceData] = array(TopicProduceData)


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@dataclass(slots=True)
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: Sequence[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


@dataclass(slots=True)
class TopicProduceResponse:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: Sequence[PartitionProduceResponse] = array(PartitionProduceResponse)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@dataclass(slots=True)
class ProduceResponse:
    responses: Sequence[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
