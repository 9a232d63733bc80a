"""ShareAcknowledge (79), versions 1-2: a member of a share group acknowledges the records that it has (KIP-932).

The session's last request (epoch -1) has the member's other records released, when the acknowledgements are written.
Version 2 has renewals of locks (KIP-1222), and the response says for how long a lock holds.
Source: ``KafkaApis.handleShareAcknowledgeRequest``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from tidegauge_broker.server.wire.kafka.authorization import share
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.handlers.share_parts import (
    NAMES_LEADER,
    Leaders,
    Names,
    Outcomes,
    acknowledge,
    named,
    service_of,
)
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.share.requests import is_valid_member_id
from tidegauge_broker.share.sessions import SessionKey, SessionRefused


def handle(request: ShareAcknowledgeRequest, context: Context) -> Response:
    """Take acknowledgements; the response comes when the share coordinator has written them."""
    return begun(_handle(request, context))


async def _handle(request: ShareAcknowledgeRequest, context: Context) -> ShareAcknowledgeResponse:
    if context.service.share is None:
        return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None or not is_valid_member_id(request.member_id):
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
    service, names = service_of(context), Names(context)
    key = SessionKey(request.group_id, request.member_id or "")
    try:
        is_final = service.sessions.acknowledge(key, request.share_session_epoch)
    except SessionRefused as refusal:
        return ShareAcknowledgeResponse(error_code=refusal.error)
    begun_ones = await acknowledge(key, await named(request.topics), names, context, renews=request.is_renew_ack)
    outcomes = await begun_ones.settled()
    if is_final:
        service.release(key)
    return _response(outcomes, names, context, service.lock_duration_ms(key.group_id))


def _response(outcomes: Outcomes, names: Names, context: Context, lock_ms: int) -> ShareAcknowledgeResponse:
    leaders = Leaders(names, context)
    topics: dict[bytes, list[PartitionData]] = {}
    for one, (error, message) in outcomes.items():
        leader = LeaderIdAndEpoch(*leaders.of(one)) if error in NAMES_LEADER else LeaderIdAndEpoch()
        topics.setdefault(one.topic_id, []).append(PartitionData(one.partition, error, message, leader))
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[ShareAcknowledgeTopicResponse(topic_id, ones) for topic_id, ones in topics.items()],
        node_endpoints=[NodeEndpoint(one, at.host, at.port, at.rack) for one, at in leaders.endpoints.items()],
    )


API = ServedApi(apis.SHARE_ACKNOWLEDGE, handle, guard=share.group_and_topics, is_small=True)
