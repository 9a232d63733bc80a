"""BeginQuorumEpoch (key 53) of Kafka 4.3.1: versions 0-1, flexible in 1+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionData:
    partition_index: int = int32()
    voter_directory_id: bytes = uuid("1+")
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class TopicData:
    topic_name: str = string()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class LeaderEndpoint:
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: Sequence[TopicData] = array(TopicData)
    leader_endpoints: Sequence[LeaderEndpoint] = array(LeaderEndpoint, "1+")


@dataclass(slots=True)
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class ResponseTopicData:
    topic_name: str = string()
    partitions: Sequence[ResponsePartitionData] = array(ResponsePartitionData)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


@dataclass(slots=True)
class BeginQuorumEpochResponse:
    error_code: int = int16()
    topics: Sequence[ResponseTopicData] = array(ResponseTopicData)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
