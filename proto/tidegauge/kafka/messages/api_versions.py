"""ApiVersions (key 18) of Kafka 3.9.1: versions 0-4, flexible in 3+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ApiVersionsRequest:
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


@dataclass(slots=True)
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True)
class SupportedFeatureKey:
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@dataclass(slots=True)
class FinalizedFeatureKey:
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@dataclass(slots=True)
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: Sequence[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: Sequence[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: Sequence[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
