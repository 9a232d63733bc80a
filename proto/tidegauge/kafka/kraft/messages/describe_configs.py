"""DescribeConfigs (key 32) of Kafka 4.3.1: versions 1-4, flexible in 4+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, boolean, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: Sequence[str] | None = array("string", nullable="0+")


@dataclass(slots=True)
class DescribeConfigsRequest:
    resources: Sequence[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@dataclass(slots=True)
class DescribeConfigsSynonym:
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean()
    synonyms: Sequence[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


@dataclass(slots=True)
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: Sequence[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@dataclass(slots=True)
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: Sequence[DescribeConfigsResult] = array(DescribeConfigsResult)
