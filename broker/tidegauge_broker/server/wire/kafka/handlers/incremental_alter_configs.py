"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from dynamic settings (KIP-339).

Append and subtract are for lists, and are applied to what the write expects to find: of two at once neither is lost,
where Kafka's later one wins. A setting that is named twice gets INVALID_REQUEST. Any broker takes topics.
Source: ``ConfigAdminManager.prepareIncrementalConfigs``, ``ZkAdminManager.incrementalAlterConfigs``.
"""

from __future__ import annotations

from enum import IntEnum

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidegauge.settings import BROKER_SETTINGS, TOPIC_SETTINGS, ListChange
from tidegauge_broker.server.service.broker_service import ConfigResourceType
from tidegauge_broker.server.wire.kafka.handlers.altered_resources import alter_each, null_settings, repeated_setting
from tidegauge_broker.server.wire.kafka.handlers.common import inherited_values, to_its_end
from tidegauge_broker.server.wire.kafka.request import Context


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
        lambda resource: _alter(resource, context, validate_only=request.validate_only),
        AlterConfigsResourceResponse,
    )
    return IncrementalAlterConfigsResponse(responses=await to_its_end(alteration))


async def _alter(resource: AlterConfigsResource, context: Context, *, validate_only: bool) -> tuple[ErrorCode, str]:
    problem = _problem(resource)
    if problem is not None:
        return problem
    if resource.resource_type == ConfigResourceType.TOPIC and not resource.resource_name:
        return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
    if resource.resource_type not in {ConfigResourceType.TOPIC, ConfigResourceType.BROKER}:
        return ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"
    described = await context.service.describe_configs(resource.resource_type, resource.resource_name)
    if described.error in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
    if described.error is not ErrorCode.NONE and resource.resource_type == ConfigResourceType.TOPIC:
        return described.error, described.message
    table = TOPIC_SETTINGS if resource.resource_type == ConfigResourceType.TOPIC else BROKER_SETTINGS
    inherited = inherited_values(described.entries, resource.resource_type, resource.resource_name)
    changed: dict[str, str | ListChange] = {}
    deleted: list[str] = []
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            deleted.append(config.name)
        elif config.config_operation == Operation.SET:
            changed[config.name] = config.value or ""
        else:
            setting = table.get(config.name)
            operation = Operation(config.config_operation)
            if setting is None or setting.kind != "list":
                message = f"Config value {operation.name.lower()} is not allowed for config key: {config.name}"
                return ErrorCode.INVALID_CONFIG, message
            parts = tuple((config.value or "").split(","))
            changed[config.name] = ListChange(parts, operation is Operation.APPEND, inherited.get(config.name, ""))
    altered = await context.service.alter_configs(
        resource.resource_type, resource.resource_name, changed, deleted, validate_only=validate_only
    )
    return altered.error, altered.message


def _problem(resource: AlterConfigsResource) -> tuple[ErrorCode, str] | None:
    """Return what is wrong with a resource in itself."""
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
