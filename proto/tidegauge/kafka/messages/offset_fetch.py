"""OffsetFetch (key 9) of Kafka 3.9.1: versions 0-9, flexible in 6+.

The versions up to 10 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    name: str = string("0-7")
    partition_indexes: Sequence[int] = array("int32", "0-7")


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partition_indexes: Sequence[int] = array("int32", "8+")


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: Sequence[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@dataclass(slots=True)
class OffsetFetchRequest:
    group_id: str = string("0-7")
    topics: Sequence[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: Sequence[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    name: str = string("0-7")
    partitions: Sequence[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    name: str = string("8-9")
    topic_id: bytes = uuid("10+")
    partitions: Sequence[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    group_id: str = string("8+")
    topics: Sequence[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+")
    topics: Sequence[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: Sequence[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
