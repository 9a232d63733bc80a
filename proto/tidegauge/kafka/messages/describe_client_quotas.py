"""DescribeClientQuotas (key 48) of Kafka 3.9.1: versions 0-1, flexible in 1+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, float64, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@dataclass(slots=True)
class DescribeClientQuotasRequest:
    components: Sequence[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@dataclass(slots=True)
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@dataclass(slots=True)
class ValueData:
    key: str = string()
    value: float = float64()


@dataclass(slots=True)
class EntryData:
    entity: Sequence[EntityData] = array(EntityData)
    values: Sequence[ValueData] = array(ValueData)


@dataclass(slots=True)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: Sequence[EntryData] | None = array(EntryData, nullable="0+")
