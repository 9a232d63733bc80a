"""AlterConfigs (33), versions 0-2: replace all dynamic settings of topics, of this broker, or of all brokers.

Settings that a request does not name return to their defaults; clients of today use IncrementalAlterConfigs, except for
all brokers' defaults. The write replaces the settings that it finds: of two at once, only the later one's remain. A
resource that is named twice gets INVALID_REQUEST. Any broker takes topics.
Source: ``ZkAdminManager.alterConfigs``, ``KafkaApis.handleAlterConfigsRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import BY_RESOURCE
from tidegauge_broker.server.wire.kafka.handlers.altered_resources import (
    alter_each,
    is_altered,
    null_settings,
    repeated_setting,
)
from tidegauge_broker.server.wire.kafka.handlers.common import to_its_end
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    """Replace settings, each resource for itself."""
    alteration = alter_each(
        request.resources,
        lambda resource: alter(resource, context, validate_only=request.validate_only),
        AlterConfigsResourceResponse,
    )
    return AlterConfigsResponse(responses=await to_its_end(alteration))


async def alter(resource: AlterConfigsResource, context: Context, *, validate_only: bool) -> tuple[ErrorCode, str]:
    """Alter one resource, or only say what would become of it; return the error and its message."""
    problem = repeated_setting(resource.configs) or null_settings(
        config.name for config in resource.configs if config.value is None
    )
    if problem is not None:
        return problem
    if resource.resource_type == ConfigResourceType.TOPIC and not resource.resource_name:
        return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
    if not is_altered(context, resource.resource_type):
        return ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"
    described = await context.service.describe_configs(resource.resource_type, resource.resource_name)
    if described.error in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
    if described.error is not ErrorCode.NONE and resource.resource_type == ConfigResourceType.TOPIC:
        return described.error, described.message
    altered = await context.service.alter_configs(
        resource.resource_type,
        resource.resource_name,
        {config.name: config.value or "" for config in resource.configs},
        None,
        validate_only=validate_only,
    )
    return altered.error, altered.message


def _refused(resource: Any, error: ErrorCode) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(error, None, resource.resource_type, resource.resource_name)


API = ServedApi(
    apis.ALTER_CONFIGS,
    handle,
    guard=parts.of_configs(Operation.ALTER_CONFIGS, "responses", _refused, in_order=True),
    form=BY_RESOURCE,
)
