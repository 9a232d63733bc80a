"""PartitionRecord of Kafka 4.3.1: versions 0-2, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int32, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionRecord:
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: Sequence[int] = array("int32")
    isr: Sequence[int] = array("int32")
    removing_replicas: Sequence[int] = array("int32")
    adding_replicas: Sequence[int] = array("int32")
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: Sequence[bytes] = array("uuid", "1+")
    eligible_leader_replicas: Sequence[int] | None = array("int32", "2+", nullable="2+", default=None, tag=1)
    last_known_elr: Sequence[int] | None = array("int32", "2+", nullable="2+", default=None, tag=2)
