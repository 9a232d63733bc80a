"""DeleteGroups (42), versions 0-2: delete groups without members, with their offsets.

Source: ``KafkaApis.handleDeleteGroupsRequest``.
"""

from __future__ import annotations

from tidegauge import groups
from tidegauge.kafka import apis
from tidegauge.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tidegauge_broker.server.wire.kafka.authorization import parts
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.handlers.common import to_its_end
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    """Delete groups, each for itself."""
    return await to_its_end(_delete(request, context))


async def _delete(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        result = await context.service.groups.ask(groups.DeleteGroup(group_id))
        results.append(DeletableGroupResult(group_id, result.error))
    return DeleteGroupsResponse(results=results)


API = ServedApi(
    apis.DELETE_GROUPS,
    handle,
    guard=parts.delete_groups,
    form=Form((Part("results", "groups_names", {"group_id": ""}),)),
    division=Division("groups_names", "results", judges_repeats=True),
)
