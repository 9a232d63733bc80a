"""Vote (key 52) of Kafka 4.3.1: versions 0-2, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string, uint16, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionData:
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("1+")
    voter_directory_id: bytes = uuid("1+")
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


@dataclass(slots=True)
class TopicData:
    topic_name: str = string()
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class VoteRequest:
    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: Sequence[TopicData] = array(TopicData)


@dataclass(slots=True)
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


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
class VoteResponse:
    error_code: int = int16()
    topics: Sequence[ResponseTopicData] = array(ResponseTopicData)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
