"""AlterConfigs (33), versions 0-2: replace all dynamic settings of topics, of this broker, or of all brokers.

What a request does not name returns to its default; clients of today use IncrementalAlterConfigs, but for the default
of all brokers. A resource that is named twice gets INVALID_REQUEST. Any broker takes topics.
Source: ``ZkAdminManager.alterConfigs``, ``KafkaApis.handleAlterConfigsRequest``.
"""

from __future__ import annotations

from collections import Counter

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tidegauge_broker.server.wire.kafka.handlers.common import dynamic_values, message_of
from tidegauge_broker.server.wire.kafka.request import Context


async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    """Replace settings, each resource for itself."""
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    responses = []
    for resource in request.resources:
        if named[resource.resource_type, resource.resource_name] > 1:
            error, message = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            error, message = await _alter(resource, context, validate_only=request.validate_only)
        responses.append(
            AlterConfigsResourceResponse(
                error, message_of(error, message), resource.resource_type, resource.resource_name
            )
        )
    return AlterConfigsResponse(responses=responses)


async def _alter(resource: AlterConfigsResource, context: Context, *, validate_only: bool) -> tuple[ErrorCode, str]:
    names = Counter(config.name for config in resource.configs)
    if any(times > 1 for times in names.values()):
        return ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"
    nulls = [config.name for config in resource.configs if config.value is None]
    if nulls:
        return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}"
    described = await context.service.describe_configs(resource.resource_type, resource.resource_name)
    if described.error is not ErrorCode.NONE:
        return described.error, described.message
    before = dynamic_values(described.entries, resource.resource_type, resource.resource_name)
    altered = await context.service.alter_configs(
        resource.resource_type,
        resource.resource_name,
        {config.name: config.value or "" for config in resource.configs},
        [name for name in before if name not in names],
        validate_only=validate_only,
    )
    return altered.error, altered.message
