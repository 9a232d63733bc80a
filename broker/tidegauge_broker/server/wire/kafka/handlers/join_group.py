"""JoinGroup (11), versions 0-9: become a member of a group's next generation.

The response is parked until the rebalance's join phase ends. From version 4 on a first join without a member id is
rejected with MEMBER_ID_REQUIRED and given one (KIP-394). Version 0 has no rebalance timeout: it is the session timeout.
From version 7 on the protocol's type is named, and a name that is not chosen, or empty, is null; version 9 may instruct
a static leader to skip the assignment (KIP-814).
Source: ``KafkaApis.handleJoinGroupRequest``, ``GroupCoordinatorAdapter.joinGroup``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_REQUIRED_MEMBER_ID = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9


def handle(request: JoinGroupRequest, context: Context) -> Any:
    """Join; the response comes when the join phase has ended."""
    return begun(_join(request, context))


async def _join(request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
    version = context.version
    has_timeout = version >= _FIRST_WITH_REBALANCE_TIMEOUT
    result = await context.service.groups.ask(
        groups.JoinGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(groups.Protocol(one.name, bytes(one.metadata)) for one in request.protocols),
            group_instance_id=request.group_instance_id,
            client_id=context.header.client_id,
            client_host=f"/{context.caller.host}",
            reason=request.reason,
            requires_known_member_id=version >= _FIRST_WITH_REQUIRED_MEMBER_ID,
            supports_skipping_assignment=version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
        )
    )
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=(name or None) if version >= _FIRST_WITH_NULL_PROTOCOL else name or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata)
            for member in result.members
        ],
    )


API = ServedApi(
    apis.JOIN_GROUP,
    handle,
    guard=whole.of_group(Operation.READ),
    form=Form(values={"generation_id": -1, "protocol_name": None}),
)
