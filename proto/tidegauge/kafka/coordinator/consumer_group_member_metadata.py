"""ConsumerGroupMemberMetadata of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, int32, string, struct
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ConsumerGroupMemberMetadataKey:
    group_id: str = string("0")
    member_id: str = string("0")


@dataclass(slots=True)
class ClassicProtocol:
    name: str = string()
    metadata: bytes = binary()


@dataclass(slots=True)
class ClassicMemberMetadata:
    session_timeout_ms: int = int32()
    supported_protocols: Sequence[ClassicProtocol] = array(ClassicProtocol)


@dataclass(slots=True)
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, nullable="0+", tag=0)
