"""GroupMetadata of Kafka 3.9.1: key versions 2, never flexible; value versions 0-4, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class GroupMetadataKey:
    group: str = string("2")


@dataclass(slots=True)
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


@dataclass(slots=True)
class GroupMetadataValue:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: Sequence[MemberMetadata] = array(MemberMetadata)
