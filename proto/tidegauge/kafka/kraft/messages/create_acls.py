"""CreateAcls (key 30) of Kafka 4.3.1: versions 1-3, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True)
class CreateAclsRequest:
    creations: Sequence[AclCreation] = array(AclCreation)


@dataclass(slots=True)
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@dataclass(slots=True)
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: Sequence[AclCreationResult] = array(AclCreationResult)
