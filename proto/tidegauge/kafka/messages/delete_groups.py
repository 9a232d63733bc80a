"""DeleteGroups (key 42) of Kafka 3.9.1: versions 0-2, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DeleteGroupsRequest:
    groups_names: Sequence[str] = array("string")


@dataclass(slots=True)
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@dataclass(slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: Sequence[DeletableGroupResult] = array(DeletableGroupResult)
