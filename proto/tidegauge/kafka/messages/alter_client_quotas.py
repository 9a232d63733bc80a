"""AlterClientQuotas (key 49) of Kafka 3.9.1: versions 0-1, flexible in 1+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, float64, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@dataclass(slots=True)
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@dataclass(slots=True)
class EntryData:
    entity: Sequence[EntityData] = array(EntityData)
    ops: Sequence[OpData] = array(OpData)


@dataclass(slots=True)
class AlterClientQuotasRequest:
    entries: Sequence[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@dataclass(slots=True)
class ResponseEntryData:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: Sequence[EntityData] = array(EntityData)


@dataclass(slots=True)
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: Sequence[ResponseEntryData] = array(ResponseEntryData)
