"""LeaderAndIsr (4), versions 0-7: the controller makes replicas of this broker leaders and followers.

Served on every listener that speaks Kafka's protocol, to anyone, as by a Kafka broker without an authorizer.
Source: ``KafkaApis.handleLeaderAndIsrRequest``, ``ReplicaManager.becomeLeaderOrFollower``.
"""

from __future__ import annotations

from tidegauge.kafka.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_controller.kafka_wire import leader_and_isr


async def handle(message: LeaderAndIsrRequest, context: Context) -> LeaderAndIsrResponse:
    """Become leader or follower."""
    request = leader_and_isr.from_request(message)
    response = await context.service.leader_and_isr(request)
    return leader_and_isr.to_response(request, response, context.version)
