"""UpdateFeatures (key 57) of Kafka 3.9.1: versions 0-1, flexible in 0+.

The versions up to 2 are those of Kafka 4.3.1.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@dataclass(slots=True)
class UpdateFeaturesRequest:
    timeout_ms: int = int32(default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@dataclass(slots=True)
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@dataclass(slots=True)
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: Sequence[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")
