"""Fetch (key 1) of Kafka 4.3.1: versions 4-18, flexible in 12+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, int64, records, string, struct, uuid
from tidegauge.kafka.records import Records
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ReplicaState:
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@dataclass(slots=True)
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1)


@dataclass(slots=True)
class FetchTopic:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: Sequence[FetchPartition] = array(FetchPartition)


@dataclass(slots=True)
class ForgottenTopic:
    topic: str = string("7-12")
    topic_id: bytes = uuid("13+")
    partitions: Sequence[int] = array("int32", "7+")


@dataclass(slots=True)
class FetchRequest:
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2147483647)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: Sequence[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: Sequence[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


@dataclass(slots=True)
class EpochEndOffset:
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@dataclass(slots=True)
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@dataclass(slots=True)
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: Sequence[AbortedTransaction] | None = array(AbortedTransaction, "4+", nullable="4+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records(nullable="0+")


@dataclass(slots=True)
class FetchableTopicResponse:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: Sequence[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@dataclass(slots=True)
class FetchResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: Sequence[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
