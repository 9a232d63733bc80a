"""The methods of ``admin_service.proto``: what administrators send.

A topic that a request names more than once has INVALID_REQUEST, as in ``KafkaApis``; the others are handled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import SettingView
from tidegauge.v1 import admin_service_pb2_grpc, common_pb2, reassignments_pb2, topics_pb2
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.service.admin_outcomes import ElectionType
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_controller import wire
from tidegauge_controller.admin import NAMED_TWICE, NewPartitions, NewTopic, TopicOutcome, repeated_names

Context = grpc.aio.ServicerContext[Any, Any]
# An unset field means preferred, and a broker. An unknown number is passed to the service.
_ELECTION_TYPES: dict[int, int] = {
    topics_pb2.ELECTION_TYPE_UNSPECIFIED: ElectionType.PREFERRED,
    topics_pb2.ELECTION_TYPE_PREFERRED: ElectionType.PREFERRED,
    topics_pb2.ELECTION_TYPE_UNCLEAN: ElectionType.UNCLEAN,
}
_RESOURCE_TYPES: dict[int, int] = {topics_pb2.CONFIG_RESOURCE_TYPE_UNSPECIFIED: ConfigResourceType.BROKER}


class AdminServicer(admin_service_pb2_grpc.AdminServiceServicer):
    """Serves the requests of administrators."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    async def CreateTopics(
        self, request: topics_pb2.CreateTopicsRequest, context: Context
    ) -> topics_pb2.CreateTopicsResponse:
        """Create topics."""
        del context
        repeated = repeated_names(topic.name for topic in request.topics)
        topics = [
            NewTopic(
                topic.name,
                topic.partition_count if topic.HasField("partition_count") else None,
                topic.replication_factor if topic.HasField("replication_factor") else None,
                [tuple(replicas.broker_ids) for replicas in topic.assignment],
                dict(topic.configs),
            )
            for topic in request.topics
            if topic.name not in repeated
        ]
        outcomes = await self._service.create_topics(topics, request.timeout_ms)
        return topics_pb2.CreateTopicsResponse(topics=_to_topic_results(outcomes, repeated))

    async def DeleteTopics(
        self, request: topics_pb2.DeleteTopicsRequest, context: Context
    ) -> topics_pb2.DeleteTopicsResponse:
        """Delete topics."""
        del context
        repeated = repeated_names(request.names)
        names = [name for name in request.names if name not in repeated]
        outcomes = await self._service.delete_topics(names, request.timeout_ms)
        return topics_pb2.DeleteTopicsResponse(topics=_to_topic_results(outcomes, repeated))

    async def ElectLeaders(
        self, request: topics_pb2.ElectLeadersRequest, context: Context
    ) -> topics_pb2.ElectLeadersResponse:
        """Elect leaders on demand."""
        del context
        wanted = [TopicPartition(item.topic, item.partition) for item in request.partitions]
        outcomes = await self._service.elect_leaders(
            None if request.all_partitions else wanted,
            _ELECTION_TYPES.get(request.election_type, request.election_type),
            request.timeout_ms,
        )
        if outcomes.error is not ErrorCode.NONE:
            return topics_pb2.ElectLeadersResponse(status=_to_status(outcomes.error, outcomes.message))
        return topics_pb2.ElectLeadersResponse(
            partitions=[
                topics_pb2.ElectPartitionResult(
                    topic=at.topic, partition=at.partition, status=_to_status(error, message)
                )
                for at, (error, message) in sorted(outcomes.partitions.items())
            ]
        )

    async def AlterPartitionReassignments(
        self, request: reassignments_pb2.AlterPartitionReassignmentsRequest, context: Context
    ) -> reassignments_pb2.AlterPartitionReassignmentsResponse:
        """Begin, replace or cancel reassignments."""
        del context
        wanted = {
            TopicPartition(item.topic, item.partition): None if item.cancel else tuple(item.replicas)
            for item in request.partitions
        }
        outcomes = await self._service.alter_reassignments(wanted)
        if outcomes.error is not ErrorCode.NONE:
            status = _to_status(outcomes.error, outcomes.message)
            return reassignments_pb2.AlterPartitionReassignmentsResponse(status=status)
        return reassignments_pb2.AlterPartitionReassignmentsResponse(
            partitions=[
                reassignments_pb2.ReassignPartitionResult(
                    topic=at.topic, partition=at.partition, status=_to_status(error, message)
                )
                for at, (error, message) in sorted(outcomes.partitions.items())
            ]
        )

    async def ListPartitionReassignments(
        self, request: reassignments_pb2.ListPartitionReassignmentsRequest, context: Context
    ) -> reassignments_pb2.ListPartitionReassignmentsResponse:
        """List the reassignments in progress."""
        del context
        asked = [TopicPartition(item.topic, item.partition) for item in request.partitions]
        found = await self._service.list_reassignments(None if request.all_partitions else asked)
        if found.error is not ErrorCode.NONE:
            status = _to_status(found.error)
            return reassignments_pb2.ListPartitionReassignmentsResponse(status=status)
        return reassignments_pb2.ListPartitionReassignmentsResponse(
            partitions=[
                reassignments_pb2.OngoingReassignment(
                    topic=at.topic,
                    partition=at.partition,
                    replicas=assignment.replicas,
                    adding_replicas=assignment.adding,
                    removing_replicas=assignment.removing,
                )
                for at, assignment in found.partitions.items()
            ]
        )

    async def CreatePartitions(
        self, request: topics_pb2.CreatePartitionsRequest, context: Context
    ) -> topics_pb2.CreatePartitionsResponse:
        """Add partitions."""
        del context
        repeated = repeated_names(topic.name for topic in request.topics)
        topics = [
            NewPartitions(topic.name, topic.total_count, [tuple(replicas.broker_ids) for replicas in topic.assignment])
            for topic in request.topics
            if topic.name not in repeated
        ]
        outcomes = await self._service.create_partitions(topics, request.timeout_ms)
        return topics_pb2.CreatePartitionsResponse(topics=_to_topic_results(outcomes, repeated))

    async def AlterConfigs(
        self, request: topics_pb2.AlterConfigsRequest, context: Context
    ) -> topics_pb2.AlterConfigsResponse:
        """Change dynamic settings, all of the request or nothing."""
        del context
        altered = await self._service.alter_configs(
            _RESOURCE_TYPES.get(request.resource_type, request.resource_type),
            request.resource_name,
            dict(request.set),
            list(request.delete),
        )
        if altered.error is not ErrorCode.NONE:
            return topics_pb2.AlterConfigsResponse(status=_to_status(altered.error, altered.message))
        return topics_pb2.AlterConfigsResponse(change_number=altered.change_number)

    async def DescribeConfigs(
        self, request: topics_pb2.DescribeConfigsRequest, context: Context
    ) -> topics_pb2.DescribeConfigsResponse:
        """Describe a topic's settings, this broker's, or those set for all brokers."""
        del context
        described = await self._service.describe_configs(
            _RESOURCE_TYPES.get(request.resource_type, request.resource_type), request.resource_name
        )
        if described.error is not ErrorCode.NONE:
            return topics_pb2.DescribeConfigsResponse(status=_to_status(described.error, described.message))
        return topics_pb2.DescribeConfigsResponse(
            entries=[_to_config_entry(view) for view in described.entries], applied_change=described.applied_change
        )


def _to_config_entry(view: SettingView) -> topics_pb2.ConfigEntry:
    return topics_pb2.ConfigEntry(
        name=view.name,
        value=view.value,
        is_default=view.is_default,
        is_read_only=view.is_read_only,
        source=view.source,
        synonyms=[
            topics_pb2.ConfigSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in view.synonyms
        ],
    )


def _to_status(error: ErrorCode, message: str = "") -> common_pb2.Status:
    return common_pb2.Status(error=wire.to_error(error), message=message)


def _to_topic_results(outcomes: Iterable[TopicOutcome], repeated: Iterable[str]) -> list[topics_pb2.TopicResult]:
    refused = (TopicOutcome(name, ErrorCode.INVALID_REQUEST, NAMED_TWICE) for name in sorted(repeated))
    return [_to_topic_result(outcome) for outcome in (*outcomes, *refused)]


def _to_topic_result(outcome: TopicOutcome) -> topics_pb2.TopicResult:
    return topics_pb2.TopicResult(
        name=outcome.name, status=_to_status(outcome.error, outcome.message), topic_id=outcome.topic_id
    )
