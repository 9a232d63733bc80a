"""ListPartitionReassignments (46), version 0: the reassignments in progress (KIP-455); null means of all topics.

At the controller only; elsewhere the response is NOT_CONTROLLER.
Source: ``KafkaApis.handleListPartitionReassignmentsRequest``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidegauge.partition import TopicPartition
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import NUMBER, Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_CONTROLLER_MESSAGE
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN


async def handle(request: ListPartitionReassignmentsRequest, context: Context) -> ListPartitionReassignmentsResponse:
    """List reassignments."""
    asked = request.topics
    wanted = None
    if asked is not None:
        wanted = [TopicPartition(topic.name, partition) for topic in asked for partition in topic.partition_indexes]
    found = await context.service.list_reassignments(wanted)
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    async for at, assignment in with_turns(found.partitions.items(), ITEMS_PER_TURN):
        topics.setdefault(at.topic, []).append(
            OngoingPartitionReassignment(at.partition, assignment.replicas, assignment.adding, assignment.removing)
        )
    return ListPartitionReassignmentsResponse(
        error_code=found.error,
        error_message=NOT_CONTROLLER_MESSAGE if found.error is ErrorCode.NOT_CONTROLLER else "",
        topics=[
            OngoingTopicReassignment(topic, partitions)
            for topic, partitions in (topics.items() if found.error is ErrorCode.NONE else ())
        ],
    )


API = ServedApi(
    apis.LIST_PARTITION_REASSIGNMENTS,
    handle,
    guard=whole.of_cluster(Operation.DESCRIBE),
    form=Form((Part("topics", "topics", same("name"), Part("partitions", "partition_indexes", NUMBER)),)),
    only_reads=True,
    is_counted=True,
)
