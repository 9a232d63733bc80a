"""ListConfigResources (key 74) of Kafka 4.3.1: versions 0-1, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ListConfigResourcesRequest:
    resource_types: Sequence[int] = array("int8", "1+")


@dataclass(slots=True)
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@dataclass(slots=True)
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: Sequence[ConfigResource] = array(ConfigResource)
