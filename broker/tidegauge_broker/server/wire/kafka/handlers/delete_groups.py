"""DeleteGroups (42), versions 0-2: delete groups without members, with their offsets.

Source: ``KafkaApis.handleDeleteGroupsRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context


def handle(request: DeleteGroupsRequest, context: Context) -> Any:
    """Delete groups, each for itself."""
    return begun(_delete(request, context))


async def _delete(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        result = await context.service.groups.ask(groups.DeleteGroup(group_id))
        results.append(DeletableGroupResult(group_id, result.error))
    return DeleteGroupsResponse(results=results)
