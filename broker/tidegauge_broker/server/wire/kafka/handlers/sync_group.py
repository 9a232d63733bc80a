"""SyncGroup (14), versions 0-5: get the assignment of a generation; the leader brings all members' assignments.

The response is parked until the leader's assignment is committed. From version 5 on the request must name the
protocol's type and name; without them it is rejected with INCONSISTENT_GROUP_PROTOCOL (KIP-559).
Source: ``KafkaApis.handleSyncGroupRequest``, ``SyncGroupRequest.areMandatoryProtocolTypeAndNamePresent``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_PROTOCOL = 5


def handle(request: SyncGroupRequest, context: Context) -> Any:
    """Synchronise; the response comes when the assignment is known."""
    if context.version >= _FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return begun(_sync(request, context))


async def _sync(request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    result = await context.service.groups.ask(
        groups.SyncGroup(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((one.member_id, bytes(one.assignment)) for one in request.assignments),
        )
    )
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


API = ServedApi(apis.SYNC_GROUP, handle, guard=whole.of_group(Operation.READ))
