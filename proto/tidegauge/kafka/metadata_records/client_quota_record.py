"""ClientQuotaRecord of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, float64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@dataclass(slots=True)
class ClientQuotaRecord:
    entity: Sequence[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()
