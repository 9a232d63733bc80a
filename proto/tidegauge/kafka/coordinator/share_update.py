"""ShareUpdate of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, int64, string, uuid
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ShareUpdateKey:
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


@dataclass(slots=True)
class StateBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@dataclass(slots=True)
class ShareUpdateValue:
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: Sequence[StateBatch] = array(StateBatch)
