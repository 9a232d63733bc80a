"""ShareGroupHeartbeat (76), version 1: a member of a share group joins, keeps its membership and leaves (KIP-932).

In ZooKeeper mode an extension, served if ``tidegauge.zookeeper.group.protocols`` has ``share``; the rules are Kafka
4.3's.
Source: ``KafkaApis.handleShareGroupHeartbeat``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import share_groups
from tidegauge.kafka import apis
from tidegauge.kafka.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tidegauge_broker.server.wire.kafka.authorization import shares
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def handle(request: ShareGroupHeartbeatRequest, context: Context) -> Any:
    """Take a heartbeat; the response comes when what it changes is committed."""
    return begun(_beat(request, context))


async def _beat(request: ShareGroupHeartbeatRequest, context: Context) -> ShareGroupHeartbeatResponse:
    wanted = heartbeat_of(request, context.header.client_id, f"/{context.caller.host}")
    return response_of(await context.service.groups.ask(wanted))


def heartbeat_of(
    request: ShareGroupHeartbeatRequest, client_id: str | None, client_host: str
) -> share_groups.ShareGroupHeartbeat:
    """Return a heartbeat as the coordinator takes it."""
    names = request.subscribed_topic_names
    return share_groups.ShareGroupHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        None if names is None else tuple(names),
        client_id or "",
        client_host,
    )


def response_of(result: share_groups.ShareGroupHeartbeatResult) -> ShareGroupHeartbeatResponse:
    """Return the coordinator's result as a response."""
    assignment = None
    if result.assignment is not None:
        assignment = Assignment([TopicPartitions(topic_id, ones) for topic_id, ones in result.assignment])
    return ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


API = ServedApi(apis.SHARE_GROUP_HEARTBEAT, handle, guard=shares.heartbeat, is_small=True)
