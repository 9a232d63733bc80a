"""Heartbeat (12), versions 0-4: a member's heartbeat, by which it learns of a rebalance.

Source: ``KafkaApis.handleHeartbeatRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import groups
from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handle(request: HeartbeatRequest, context: Context) -> Any:
    """Restart the member's session timer."""
    return begun(_beat(request, context))


async def _beat(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    wanted = groups.Heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    result = await context.service.groups.ask(wanted)
    return HeartbeatResponse(error_code=result.error)


API = ServedApi(apis.HEARTBEAT, handle, guard=whole.of_group(Operation.READ), is_small=True)
