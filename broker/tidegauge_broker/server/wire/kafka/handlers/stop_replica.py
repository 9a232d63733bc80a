"""StopReplica (5), versions 0-4: the controller stops replicas of this broker, and has some of them deleted.

Served on every listener that speaks Kafka's protocol, to anyone, as by a Kafka broker without an authorizer.
Source: ``KafkaApis.handleStopReplicaRequest``, ``ReplicaManager.stopReplicas``.
"""

from __future__ import annotations

from tidegauge.kafka.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_controller.kafka_wire import stop_replica


async def handle(message: StopReplicaRequest, context: Context) -> StopReplicaResponse:
    """Stop replicas."""
    request = stop_replica.from_request(message)
    return stop_replica.to_response(request, await context.service.stop_replica(request))
