"""ListGroups (key 16) of Kafka 3.9.1: versions 0-5, flexible in 3+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ListGroupsRequest:
    states_filter: Sequence[str] = array("string", "4+")
    types_filter: Sequence[str] = array("string", "5+")


@dataclass(slots=True)
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@dataclass(slots=True)
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: Sequence[ListedGroup] = array(ListedGroup)
