"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments at the controller.

Source: ``ControllerApis.handleElectLeaders``, ``handleAlterPartitionReassignments``,
``handleListPartitionReassignments``; KIP-455, KIP-460.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.large_requests import prepared
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_broker.server.quorum.controller.topics_served import text_of
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import partitions, reassignment
from tidegauge_controller.metadata.decisions.view import Decision

_PREFERRED, _UNCLEAN = 0, 1
"""Types of elections (``ElectionType``)."""


def served(controller: QuorumController) -> list[Served]:
    """Return the APIs."""
    return [
        Served(apis.ELECT_LEADERS, prepared(controller, partial(_elect_leaders, controller)), is_forwarded=True),
        Served(
            apis.ALTER_PARTITION_REASSIGNMENTS, prepared(controller, partial(_reassign, controller)), is_forwarded=True
        ),
        Served(
            apis.LIST_PARTITION_REASSIGNMENTS,
            prepared(controller, partial(_list_reassignments, controller)),
            is_forwarded=True,
        ),
    ]


def _elect_leaders(controller: QuorumController, call: Call) -> WriteEvent | None:
    message: elect_leaders.ElectLeadersRequest = call.message
    kind = message.election_type if call.version > 0 else _PREFERRED
    if kind not in {_PREFERRED, _UNCLEAN}:
        call.refuse(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
        return None
    wanted = None
    if message.topic_partitions is not None:
        wanted = [(topic.topic, partition) for topic in message.topic_partitions for partition in topic.partitions]

    def decide(active: ActiveController, _: int) -> Decision[list[partitions.ElectionResult]]:
        return partitions.elect_leaders(active.view, wanted, unclean=kind == _UNCLEAN)

    def done(results: Sequence[partitions.ElectionResult]) -> None:
        named = controller.image.topic_ids if wanted is None else ()
        of_topics: dict[str, list[elect_leaders.PartitionResult]] = {name: [] for name in named}
        for one in results:
            result = elect_leaders.PartitionResult(one.partition, one.error, text_of(one.error, one.message))
            of_topics.setdefault(one.topic, []).append(result)
        call.respond(
            elect_leaders.ElectLeadersResponse(
                replica_election_results=[
                    elect_leaders.ReplicaElectionResult(topic, found) for topic, found in of_topics.items()
                ]
            )
        )

    deadline_ms = controller.now_ms + message.timeout_ms
    count = None if wanted is None else len(wanted)
    return WriteEvent("electLeaders", decide, done, call.refuse, deadline_ms=deadline_ms, partitions=count)


def _reassign(controller: QuorumController, call: Call) -> WriteEvent:
    message: alter_partition_reassignments.AlterPartitionReassignmentsRequest = call.message
    wanted = [
        reassignment.Reassignment(
            topic.name, one.partition_index, None if one.replicas is None else tuple(one.replicas)
        )
        for topic in message.topics
        for one in topic.partitions
    ]
    may_change = message.allow_replication_factor_change

    def decide(active: ActiveController, _: int) -> Decision[list[reassignment.ReassignmentResult]]:
        return reassignment.alter_reassignments(active.view, wanted, may_change_replication_factor=may_change)

    def done(results: Sequence[reassignment.ReassignmentResult]) -> None:
        of_topics: dict[str, list[alter_partition_reassignments.ReassignablePartitionResponse]] = {}
        for one in results:
            of_topics.setdefault(one.topic, []).append(
                alter_partition_reassignments.ReassignablePartitionResponse(
                    one.partition, one.error, text_of(one.error, one.message)
                )
            )
        call.respond(
            alter_partition_reassignments.AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=may_change,
                error_message=None,
                responses=[
                    alter_partition_reassignments.ReassignableTopicResponse(topic, found)
                    for topic, found in of_topics.items()
                ],
            )
        )

    deadline_ms = controller.now_ms + message.timeout_ms
    name = "alterPartitionReassignments"
    return WriteEvent(name, decide, done, call.refuse, deadline_ms=deadline_ms, partitions=len(wanted))


def _list_reassignments(controller: QuorumController, call: Call) -> None:
    """Respond from the committed image, as each controller does, active or not."""
    message: list_partition_reassignments.ListPartitionReassignmentsRequest = call.message
    wanted = None
    if message.topics is not None:
        wanted = [(topic.name, partition) for topic in message.topics for partition in topic.partition_indexes]
    of_topics: dict[str, list[list_partition_reassignments.OngoingPartitionReassignment]] = {}
    for name, partition, state in reassignment.reassignments(controller.image, wanted):
        of_topics.setdefault(name, []).append(
            list_partition_reassignments.OngoingPartitionReassignment(
                partition, state.replicas, state.adding, state.removing
            )
        )
    call.respond(
        list_partition_reassignments.ListPartitionReassignmentsResponse(
            error_message=None,
            topics=[
                list_partition_reassignments.OngoingTopicReassignment(topic, found)
                for topic, found in of_topics.items()
            ],
        )
    )
