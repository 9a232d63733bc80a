"""FetchSnapshot (key 59) of Kafka 4.3.1: versions 0-1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, int64, records, string, struct, uint16, uuid
from tidegauge.kafka.records import Records
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class SnapshotId:
    end_offset: int = int64()
    epoch: int = int32()


@dataclass(slots=True)
class PartitionSnapshot:
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId | None = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid("1+", tag=0)


@dataclass(slots=True)
class TopicSnapshot:
    name: str = string()
    partitions: Sequence[PartitionSnapshot] = array(PartitionSnapshot)


@dataclass(slots=True)
class FetchSnapshotRequest:
    cluster_id: str | None = string(nullable="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: Sequence[TopicSnapshot] = array(TopicSnapshot)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class ResponsePartitionSnapshot:
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId | None = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records | None = records()


@dataclass(slots=True)
class ResponseTopicSnapshot:
    name: str = string()
    partitions: Sequence[ResponsePartitionSnapshot] = array(ResponsePartitionSnapshot)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


@dataclass(slots=True)
class FetchSnapshotResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: Sequence[ResponseTopicSnapshot] = array(ResponseTopicSnapshot)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
