"""OffsetCommit of Kafka 3.9.1: key versions 0-1, never flexible; value versions 0-4, flexible in 4+.

The value is as of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from tidegauge.kafka.fields import int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class OffsetCommitKey:
    group: str = string("0-1")
    topic: str = string("0-1")
    partition: int = int32("0-1")


@dataclass(slots=True)
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)
