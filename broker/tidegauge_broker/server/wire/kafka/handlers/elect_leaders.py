"""ElectLeaders (43), versions 0-2: preferred and unclean elections on demand, at the controller (KIP-460).

Null means all partitions; those that need no election are then left out. A broker that is not the controller responds
with NOT_CONTROLLER for each partition. Version 0 has preferred elections only.
Source: ``KafkaApis.handleElectLeaders``, ``KafkaController.electLeaders``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.service.admin_outcomes import ElectionType
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.handlers.common import message_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    """Elect leaders."""
    asked = request.topic_partitions
    wanted = None
    if asked is not None:
        wanted = [TopicPartition(topic.topic, partition) for topic in asked for partition in topic.partitions]
    election_type = request.election_type if context.version > 0 else ElectionType.PREFERRED
    outcomes = await context.service.elect_leaders(wanted, election_type, request.timeout_ms)
    results = dict(outcomes.partitions)
    if outcomes.error is ErrorCode.NOT_CONTROLLER:
        view = context.service.metadata(context.caller, None, may_create=False)
        known = [TopicPartition(topic.name, one.partition) for topic in view.topics for one in topic.partitions]
        results = dict.fromkeys(known if wanted is None else wanted, (ErrorCode.NOT_CONTROLLER, ""))
    elif outcomes.error is not ErrorCode.NONE:
        return ElectLeadersResponse(error_code=outcomes.error)
    if wanted is None:
        results = {at: result for at, result in results.items() if result[0] is not ErrorCode.ELECTION_NOT_NEEDED}
    topics: dict[str, list[PartitionResult]] = {}
    for at, (error, message) in sorted(results.items()):
        topics.setdefault(at.topic, []).append(PartitionResult(at.partition, error, message_of(error, message)))
    return ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic, found) for topic, found in topics.items()]
    )


API = ServedApi(
    apis.ELECT_LEADERS,
    handle,
    guard=whole.of_cluster(Operation.ALTER),
    form=Form(
        (
            Part(
                "replica_election_results",
                "topic_partitions",
                same("topic"),
                Part("partition_result", "partitions", {"partition_id": ""}),
            ),
        )
    ),
)
