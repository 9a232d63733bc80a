"""DescribeConfigs (32), versions 0-4: settings of topics, groups and this broker, or all brokers' defaults.

A broker is asked for its own settings; another id gets INVALID_REQUEST, the empty name is the default of all. No names
mean all; those that a resource does not have are skipped. Values of sensitive settings are null.
Source: ``ConfigHelper.describeConfigs``, ``KafkaApis.handleDescribeConfigsRequest``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidegauge.settings import Setting, SettingView
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.authorization.asking import (
    BY_CLUSTER,
    BY_CLUSTER_MESSAGE,
    BY_GROUP,
    BY_GROUP_MESSAGE,
    BY_TOPIC,
    BY_TOPIC_MESSAGE,
)
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.altered_resources import RESOURCE_TABLES
from tidegauge_broker.server.wire.kafka.handlers.common import SOURCES
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "CLASS": 8, "PASSWORD": 9}


async def handle(request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    """Describe resources, each for itself."""
    return DescribeConfigsResponse(results=[await _describe(one, request, context) for one in request.resources])


async def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResult:
    found = await context.service.describe_configs(resource.resource_type, resource.resource_name)
    keys = resource.configuration_keys
    return DescribeConfigsResult(
        found.error,
        _message(found.error, found.message),
        resource.resource_type,
        resource.resource_name,
        [
            _entry(entry, request, RESOURCE_TABLES[resource.resource_type])
            for entry in (found.entries if found.error is ErrorCode.NONE else ())
            if not keys or entry.name in keys
        ],
    )


def _message(error: ErrorCode, message: str) -> str | None:
    """Return ``ConfigHelper``'s message: empty for a topic that does not exist."""
    return "" if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else message


def _entry(
    view: SettingView, request: DescribeConfigsRequest, table: Mapping[str, Setting]
) -> DescribeConfigsResourceResult:
    setting = table.get(view.name)
    is_sensitive = setting is not None and setting.is_sensitive
    return DescribeConfigsResourceResult(
        view.name,
        None if is_sensitive else view.value,
        view.is_read_only,
        view.is_default,
        SOURCES[view.source],
        is_sensitive,
        [
            DescribeConfigsSynonym(one.name, None if is_sensitive else one.value, SOURCES[one.source])
            for one in (view.synonyms if request.include_synonyms else ())
        ],
        0 if setting is None else _TYPES[setting.type_name],
        setting.meaning if request.include_documentation and setting is not None else None,
    )


_REFUSALS = {BY_TOPIC: BY_TOPIC_MESSAGE, BY_GROUP: BY_GROUP_MESSAGE, BY_CLUSTER: BY_CLUSTER_MESSAGE}


def _refused(resource: Any, error: ErrorCode) -> DescribeConfigsResult:
    message = _REFUSALS[error]
    return DescribeConfigsResult(error, message, resource.resource_type, resource.resource_name)


_LARGE_FROM_BYTES = 512
"""Frames are large from fewer bytes on than for other APIs: an item takes some 100 times as long."""
API = ServedApi(
    apis.DESCRIBE_CONFIGS,
    handle,
    guard=parts.of_configs(Operation.DESCRIBE_CONFIGS, "results", _refused),
    form=Form((Part("results", "resources", same("resource_type", "resource_name")),), is_explained=True),
    only_reads=True,
    division=Division("resources", "results", weight=25, shares_repeats=True),
    large_from_bytes=_LARGE_FROM_BYTES,
    is_counted=True,
)
