"""ShareGroupMemberMetadata of Kafka 4.3.1: key versions 0, never flexible; value versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ShareGroupMemberMetadataKey:
    group_id: str = string("0")
    member_id: str = string("0")


@dataclass(slots=True)
class ShareGroupMemberMetadataValue:
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array("string")
