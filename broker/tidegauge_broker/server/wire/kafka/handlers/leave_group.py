"""LeaveGroup (13), versions 0-5: remove members from a group.

Versions 0 to 2 name one member, whose error is the response's; from version 3 on each member has its own, and a
static one may be named by its instance id alone (KIP-345).
Source: ``KafkaApis.handleLeaveGroupRequest``, ``LeaveGroupRequest.normalizedData``, ``LeaveGroupResponse``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_MEMBERS = 3


def handle(request: LeaveGroupRequest, context: Context) -> Any:
    """Remove the members."""
    return begun(_leave(request, context))


async def _leave(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    has_members = context.version >= _FIRST_WITH_MEMBERS
    members = (
        tuple(groups.LeavingMember(one.member_id, one.group_instance_id, one.reason) for one in request.members)
        if has_members
        else (groups.LeavingMember(request.member_id),)
    )
    result = await context.service.groups.ask(groups.LeaveGroup(request.group_id, members))
    if not has_members:
        error = result.error
        if error is ErrorCode.NONE and result.members:
            error = result.members[0].error
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        error_code=result.error,
        members=[MemberResponse(one.member_id, one.group_instance_id, one.error) for one in result.members],
    )


API = ServedApi(apis.LEAVE_GROUP, handle, guard=whole.of_group(Operation.READ))
