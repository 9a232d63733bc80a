"""IncrementalAlterConfigs (key 44) of Kafka 3.9.1: versions 0-1, flexible in 1+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@dataclass(slots=True)
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: Sequence[AlterableConfig] = array(AlterableConfig)


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    resources: Sequence[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: Sequence[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
