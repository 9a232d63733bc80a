"""AlterPartitionReassignments (45), version 0: begin, replace or (null replicas) cancel reassignments (KIP-455).

At the controller only; elsewhere the response is NOT_CONTROLLER.
Source: ``KafkaApis.handleAlterPartitionReassignmentsRequest``, ``KafkaController.alterPartitionReassignments``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_CONTROLLER_MESSAGE, message_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: AlterPartitionReassignmentsRequest, context: Context) -> AlterPartitionReassignmentsResponse:
    """Change reassignments, each partition for itself."""
    wanted = {
        TopicPartition(topic.name, item.partition_index): None if item.replicas is None else tuple(item.replicas)
        for topic in request.topics
        for item in topic.partitions
    }
    outcomes = await context.service.alter_reassignments(wanted)
    if outcomes.error is not ErrorCode.NONE:
        return AlterPartitionReassignmentsResponse(
            error_code=outcomes.error, error_message=outcomes.message or NOT_CONTROLLER_MESSAGE
        )
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for at, (error, message) in outcomes.partitions.items():
        result = ReassignablePartitionResponse(at.partition, error, message_of(error, message))
        topics.setdefault(at.topic, []).append(result)
    return AlterPartitionReassignmentsResponse(
        error_message="", responses=[ReassignableTopicResponse(topic, found) for topic, found in topics.items()]
    )


API = ServedApi(
    apis.ALTER_PARTITION_REASSIGNMENTS,
    handle,
    guard=whole.of_cluster(Operation.ALTER),
    form=Form((Part("responses", "topics", same("name"), Part("partitions", "partitions", same("partition_index"))),)),
)
