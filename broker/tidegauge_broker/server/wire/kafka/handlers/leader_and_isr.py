"""LeaderAndIsr (4), versions 0-7: the controller makes replicas of this broker leaders and followers.

Served on every listener that speaks Kafka's protocol, to anyone, as by a Kafka broker without an authorizer.
Source: ``KafkaApis.handleLeaderAndIsrRequest``, ``ReplicaManager.becomeLeaderOrFollower``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.fields import Versions
from tidegauge.kafka.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_controller.kafka_wire import leader_and_isr


async def handle(message: LeaderAndIsrRequest, context: Context) -> LeaderAndIsrResponse:
    """Become leader or follower."""
    request = leader_and_isr.from_request(message)
    response = await context.service.leader_and_isr(request)
    return leader_and_isr.to_response(request, response, context.version)


API = ServedApi(
    apis.LEADER_AND_ISR,
    handle,
    guard=whole.of_cluster(Operation.CLUSTER_ACTION),
    form=Form(
        (
            Part("partition_errors", "ungrouped_partition_states", same("topic_name", "partition_index")),
            Part(
                "partition_errors",
                "topic_states.partition_states",
                same("partition_index"),
                versions=Versions.of("2-4"),
                of_outer=same("topic_name"),
            ),
            Part(
                "topics",
                "topic_states",
                same("topic_id"),
                Part("partition_errors", "partition_states", same("partition_index")),
                Versions.of("5+"),
            ),
        )
    ),
    is_exempt=True,
)
