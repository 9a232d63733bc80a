"""ListGroups (16), versions 0-5: the groups that this broker coordinates; a client asks every broker.

Version 4 filters by state (KIP-518), version 5 by type (KIP-848); every group here is classic.
Source: ``KafkaApis.handleListGroupsRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.kafka import apis
from tidegauge.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tidegauge_broker.server.wire.kafka.authorization import listed
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import converted


def handle(request: ListGroupsRequest, context: Context) -> Any:
    """List the groups."""
    return begun(_list(request, context))


async def _list(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    wanted = groups.ListGroups(tuple(request.states_filter), tuple(request.types_filter))
    result = await context.service.groups.ask(wanted)
    listed = await converted(
        lambda one: ListedGroup(one.group_id, one.protocol_type, one.state, one.group_type), result.groups
    )
    return ListGroupsResponse(error_code=result.error, groups=listed)


API = ServedApi(apis.LIST_GROUPS, handle, guard=listed.list_groups, only_reads=True, is_counted=True)
