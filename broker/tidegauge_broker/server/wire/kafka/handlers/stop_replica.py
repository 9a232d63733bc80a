"""StopReplica (5), versions 0-4: the controller stops replicas of this broker, and has some of them deleted.

Served on every listener that speaks Kafka's protocol, to anyone, as by a Kafka broker without an authorizer.
Source: ``KafkaApis.handleStopReplicaRequest``, ``ReplicaManager.stopReplicas``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import NUMBER, Form, Part, same
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_controller.kafka_wire import stop_replica


async def handle(message: StopReplicaRequest, context: Context) -> StopReplicaResponse:
    """Stop replicas."""
    request = stop_replica.from_request(message)
    return stop_replica.to_response(request, await context.service.stop_replica(request))


API = ServedApi(
    apis.STOP_REPLICA,
    handle,
    guard=whole.of_cluster(Operation.CLUSTER_ACTION),
    form=Form(
        (
            Part("partition_errors", "ungrouped_partitions", same("topic_name", "partition_index")),
            Part("partition_errors", "topics.partition_indexes", NUMBER, of_outer={"topic_name": "name"}),
            Part(
                "partition_errors",
                "topic_states.partition_states",
                same("partition_index"),
                of_outer=same("topic_name"),
            ),
        )
    ),
    is_exempt=True,
)
