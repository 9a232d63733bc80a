"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from dynamic settings (KIP-339).

Append and subtract are for lists, and are applied to what the write expects to find: of two at once neither is lost,
where Kafka's later one wins. A setting that is named twice gets INVALID_REQUEST. Any broker takes topics. That a
topic's setting is no list is found before it is seen that there is no such topic, as in Kafka.
Source: ``ConfigAdminManager.prepareIncrementalConfigs``, ``ZkAdminManager.incrementalAlterConfigs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from tidegauge.cluster_metadata import access_lists
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidegauge.settings import ListChange, Setting
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import BY_RESOURCE
from tidegauge_broker.server.wire.kafka.handlers.altered_resources import (
    RESOURCE_TABLES,
    alter_each,
    is_altered,
    null_settings,
    repeated_setting,
)
from tidegauge_broker.server.wire.kafka.handlers.common import inherited_values, to_its_end
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


class Operation(IntEnum):
    """Kafka's numbers of ``AlterConfigOp.OpType``."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(request: IncrementalAlterConfigsRequest, context: Context) -> IncrementalAlterConfigsResponse:
    """Alter settings, each resource for itself."""
    alteration = alter_each(
        request.resources,
        lambda resource: alter(resource, context, validate_only=request.validate_only),
        AlterConfigsResourceResponse,
    )
    return IncrementalAlterConfigsResponse(responses=await to_its_end(alteration))


async def alter(resource: AlterConfigsResource, context: Context, *, validate_only: bool) -> tuple[ErrorCode, str]:
    """Alter one resource, or only say what would become of it; return the error and its message."""
    problem = _problem(resource)
    if problem is not None:
        return problem
    if resource.resource_type == ConfigResourceType.TOPIC and not resource.resource_name:
        return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
    if not is_altered(context, resource.resource_type):
        return ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"
    no_list = _no_list(resource, RESOURCE_TABLES[resource.resource_type])
    if no_list is not None and resource.resource_type != ConfigResourceType.BROKER:
        return no_list
    described = await context.service.describe_configs(resource.resource_type, resource.resource_name)
    if described.error in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
    if described.error is not ErrorCode.NONE and resource.resource_type == ConfigResourceType.TOPIC:
        return described.error, described.message
    if no_list is not None:  # another broker's settings are refused before theirs, as in Kafka
        refused = await context.service.alter_configs(
            resource.resource_type, resource.resource_name, {}, [], validate_only=True
        )
        return no_list if refused.error is ErrorCode.NONE else (refused.error, refused.message)
    inherited = inherited_values(described.entries, resource.resource_type, resource.resource_name)
    changed: dict[str, str | ListChange] = {}
    deleted: list[str] = []
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            deleted.append(config.name)
        elif config.config_operation == Operation.SET:
            changed[config.name] = config.value or ""
        else:
            parts = tuple((config.value or "").split(","))
            changed[config.name] = ListChange(
                parts, config.config_operation == Operation.APPEND, inherited.get(config.name, "")
            )
    altered = await context.service.alter_configs(
        resource.resource_type, resource.resource_name, changed, deleted, validate_only=validate_only
    )
    return altered.error, altered.message


def _no_list(resource: AlterConfigsResource, table: Mapping[str, Setting]) -> tuple[ErrorCode, str] | None:
    """Return the refusal of a list operation on another type."""
    for config in resource.configs:
        setting = table.get(config.name)
        if config.config_operation in {Operation.APPEND, Operation.SUBTRACT} and (
            setting is None or setting.kind != "list"
        ):
            operation = Operation(config.config_operation).name.lower()
            return ErrorCode.INVALID_CONFIG, f"Config value {operation} is not allowed for config key: {config.name}"
    return None


def _problem(resource: AlterConfigsResource) -> tuple[ErrorCode, str] | None:
    """Return a problem of a resource by itself."""
    repeated = repeated_setting(resource.configs)
    if repeated is not None:
        return repeated
    unknown = [one.config_operation for one in resource.configs if one.config_operation not in set(Operation)]
    if unknown:
        return ErrorCode.INVALID_REQUEST, f"Unknown config operation {unknown[0]}"
    return null_settings(
        config.name
        for config in resource.configs
        if config.value is None and config.config_operation != Operation.DELETE
    )


def _refused(resource: Any, error: ErrorCode) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(error, None, resource.resource_type, resource.resource_name)


API = ServedApi(
    apis.INCREMENTAL_ALTER_CONFIGS,
    handle,
    guard=parts.of_configs(access_lists.Operation.ALTER_CONFIGS, "responses", _refused, in_order=True),
    form=BY_RESOURCE,
)
