"""ShareAcknowledge (key 79) of Kafka 4.3.1: versions 1-2, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string, struct, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AcknowledgementBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: Sequence[int] = array("int8")


@dataclass(slots=True)
class AcknowledgePartition:
    partition_index: int = int32()
    acknowledgement_batches: Sequence[AcknowledgementBatch] = array(AcknowledgementBatch)


@dataclass(slots=True)
class AcknowledgeTopic:
    topic_id: bytes = uuid()
    partitions: Sequence[AcknowledgePartition] = array(AcknowledgePartition)


@dataclass(slots=True)
class ShareAcknowledgeRequest:
    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: Sequence[AcknowledgeTopic] = array(AcknowledgeTopic)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch)


@dataclass(slots=True)
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = uuid()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class ShareAcknowledgeResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: Sequence[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint)
