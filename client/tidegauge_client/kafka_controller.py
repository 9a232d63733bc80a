"""Requests to a controller that is an Apache Kafka broker, over Kafka's protocol (docs/mixed-clusters.md).

They are those that a Tidegauge controller gets over gRPC, with the same results and errors: each is sent to the
controller itself, as Kafka's admin client does (``KafkaAdminClient``, ``ControllerNodeProvider``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidegauge.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidegauge.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidegauge.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidegauge.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidegauge.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidegauge.kafka.topic_ids import known_topic_id
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge.security import Security
from tidegauge_client.ongoing_reassignment import OngoingReassignment

CLIENT_ID = "tidegauge"
_MARGIN_SECONDS = 1.0
"""The controller responds at its own timeout; this margin lets that response arrive."""
_BY_DEFAULT = -1
"""Count or replication factor: the controller's own default, from version 4 of CreateTopics on."""
_FIRST_WITH_DEFAULTS = 4
_FIRST_WITH_STATES = 6
_FIRST_WITH_TYPES = 1

Outcomes = dict[TopicPartition, TidegaugeError | None]


class KafkaController:
    """A connection to the controller; an asynchronous context manager.

    Args:
        address: the controller's, for Kafka clients.
        security: the client's, used for this connection too.
    """

    def __init__(self, address: str, security: Security) -> None:
        self._channel = KafkaChannel(address, CLIENT_ID, Dialer(security), security.login)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        assignment: Sequence[Sequence[int]],
        configs: Mapping[str, str],
        timeout_ms: float,
    ) -> str:
        """Create a topic; return its id.

        Raises:
            TidegaugeError: as the controller responds.
        """
        placed = [CreatableReplicaAssignment(index, ids) for index, ids in enumerate(assignment)]
        topic = CreatableTopic(
            name,
            _BY_DEFAULT if partitions is None or placed else partitions,
            _BY_DEFAULT if replication_factor is None or placed else replication_factor,
            placed,
            [CreatableTopicConfig(key, value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest([topic], int(timeout_ms))
        response = await self._send(apis.CREATE_TOPICS, request, timeout_ms, _FIRST_WITH_DEFAULTS)
        [result] = response.topics
        _raise_for(result.error_code, result.error_message)
        return known_topic_id(result.topic_id)

    async def delete_topic(self, name: str, timeout_ms: float) -> None:
        """Delete a topic.

        Raises:
            TidegaugeError: as the controller responds.
        """
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=int(timeout_ms))
        response = await self._send(apis.DELETE_TOPICS, request, timeout_ms, _FIRST_WITH_STATES)
        [result] = response.responses
        _raise_for(result.error_code, result.error_message)

    async def create_partitions(
        self, name: str, total_count: int, assignment: Sequence[Sequence[int]], timeout_ms: float
    ) -> None:
        """Add partitions, placed by ``assignment`` or, if it is empty, by the controller.

        Raises:
            TidegaugeError: as the controller responds.
        """
        placed = [CreatePartitionsAssignment(ids) for ids in assignment] or None
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, total_count, placed)], int(timeout_ms))
        response = await self._send(apis.CREATE_PARTITIONS, request, timeout_ms)
        [result] = response.results
        _raise_for(result.error_code, result.error_message)

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, *, unclean: bool, timeout_ms: float
    ) -> Outcomes:
        """Elect preferred or unclean leaders; None: of all partitions that need it.

        Raises:
            TidegaugeError: an error of the whole request.
        """
        topics = (
            None if partitions is None else [TopicPartitions(*one) for one in partitions_by_topic(partitions).items()]
        )
        request = ElectLeadersRequest(int(unclean), topics, int(timeout_ms))
        response = await self._send(apis.ELECT_LEADERS, request, timeout_ms, _FIRST_WITH_TYPES)
        _raise_for(response.error_code, None)
        return {
            TopicPartition(topic.topic, one.partition_id): _problem(one.error_code, one.error_message)
            for topic in response.replica_election_results
            for one in topic.partition_result
        }

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float
    ) -> Outcomes:
        """Begin to move partitions to these replicas, or (None) cancel that.

        Raises:
            TidegaugeError: an error of the whole request.
        """
        topics = [
            ReassignableTopic(
                topic, [ReassignablePartition(index, targets[TopicPartition(topic, index)]) for index in indexes]
            )
            for topic, indexes in partitions_by_topic(targets).items()
        ]
        request = AlterPartitionReassignmentsRequest(int(timeout_ms), topics=topics)
        response = await self._send(apis.ALTER_PARTITION_REASSIGNMENTS, request, timeout_ms)
        _raise_for(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): _problem(one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None, timeout_ms: float
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Return the reassignments in progress, of these partitions or (None) of all.

        Raises:
            TidegaugeError: an error of the whole request.
        """
        topics = None
        if partitions is not None:
            topics = [ListPartitionReassignmentsTopics(*one) for one in partitions_by_topic(partitions).items()]
        request = ListPartitionReassignmentsRequest(int(timeout_ms), topics)
        response = await self._send(apis.LIST_PARTITION_REASSIGNMENTS, request, timeout_ms)
        _raise_for(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): OngoingReassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in response.topics
            for one in topic.partitions
        }

    async def _send(self, key: int, request: Any, timeout_ms: float, at_least: int = 0) -> Any:
        return await self._channel.request(key, request, timeout_ms / 1000 + _MARGIN_SECONDS, at_least=at_least)


def _problem(code: int, message: str | None) -> TidegaugeError | None:
    return None if code == ErrorCode.NONE else TidegaugeError(ErrorCode.of(code), message or "")


def _raise_for(code: int, message: str | None) -> None:
    problem = _problem(code, message)
    if problem is not None:
        raise problem
