"""PartitionChangeRecord of Kafka 4.3.1: versions 0-2, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int32, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class PartitionChangeRecord:
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: Sequence[int] | None = array("int32", nullable="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: Sequence[int] | None = array("int32", nullable="0+", default=None, tag=2)
    removing_replicas: Sequence[int] | None = array("int32", nullable="0+", default=None, tag=3)
    adding_replicas: Sequence[int] | None = array("int32", nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: Sequence[bytes] | None = array("uuid", "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: Sequence[int] | None = array("int32", "2+", nullable="2+", default=None, tag=6)
    last_known_elr: Sequence[int] | None = array("int32", "2+", nullable="2+", default=None, tag=7)
