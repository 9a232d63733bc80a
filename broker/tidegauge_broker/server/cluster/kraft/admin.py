"""Administration in KRaft mode: requests to the controller, for gRPC clients and the broker itself, all forwarded.

This process is no controller, so requests of other brokers to a controller get NOT_CONTROLLER (``port.Controller``).
A topic that was created is waited for until this broker's metadata show it, as in ZooKeeper mode.
Source: ``KafkaApis`` and ``ControllerApis`` of KRaft mode.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tidegauge.cluster_metadata import Assignment
from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import alter_partition_reassignments as reassignments
from tidegauge.kafka.kraft.messages import create_partitions, create_topics, delete_topics, elect_leaders
from tidegauge.kafka.kraft.messages import list_partition_reassignments as listed
from tidegauge.kafka.topic_ids import known_topic_id
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.cluster.kraft.forwarding import Forwarding
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_controller.admin import Mutate, NewPartitions, NewTopic, TopicOutcome, unlimited
from tidegauge_controller.port import Verdict

_DEFAULT = -1
_SHOWN_WITHIN_MS = 5_000
"""Maximum time that an admin's request waits for this broker's metadata: the change itself is committed."""
_UNCLEAN, _PREFERRED = 1, 0
_REASSIGNMENT_MS = 60_000


class KRaftAdmin:
    """Administration through the active controller.

    Args:
        forwarding: to the controller.
        metadata: this broker's view of the cluster.
        leader_id: returns the active controller's id; None: none is known.
    """

    def __init__(self, forwarding: Forwarding, metadata: MetadataCache, leader_id: Callable[[], int | None]) -> None:
        self._forwarding = forwarding
        self._metadata = metadata
        self._leader_id = leader_id

    @property
    def active_controller_id(self) -> int | None:
        """The leader of the quorum, as far as this broker knows."""
        return self._leader_id()

    @property
    def is_active(self) -> bool:
        """Whether this process is the active controller: it is none."""
        return False

    @property
    def forwards(self) -> bool:
        """Whether requests of admins are handed on: they are."""
        return True

    def unclean_election_enabled(self, topic: str | None = None) -> None:
        """Do nothing: the controllers follow the settings by themselves."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Refuse: this is no controller."""
        del request
        return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER)

    async def topic_names(self, topic_ids: Collection[str]) -> dict[str, str] | None:
        """Refuse: this is no controller."""
        del topic_ids
        return None

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, list[TopicPartition]]:
        """Refuse: this is no controller."""
        del broker_id, broker_epoch
        return ErrorCode.NOT_CONTROLLER, []

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, int, int]:
        """Refuse: this is no controller."""
        del broker_id, broker_epoch
        return ErrorCode.NOT_CONTROLLER, 0, 0

    # Topics

    async def create_topics(
        self, topics: Sequence[NewTopic], timeout_ms: int, mutate: Mutate = unlimited, *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Have topics created; return when each partition has a leader in this broker's metadata."""
        del mutate  # the controller takes it of the principal's quota
        request = create_topics.CreateTopicsRequest([_creatable(one) for one in topics], timeout_ms, validate_only)

        async def ask() -> list[TopicOutcome]:
            response = await self._forwarding.ask(apis.CREATE_TOPICS, request)
            return [_topic_outcome(one, known_topic_id(one.topic_id)) for one in response.topics]

        outcomes = await _outcomes(topics, ask)
        if not validate_only:
            made = [one.name for one in outcomes if one.error is ErrorCode.NONE]
            await self._until_shown(lambda: all(self._is_led(name) for name in made), timeout_ms)
        return outcomes

    def _is_led(self, topic: str) -> bool:
        found = self._metadata.partitions(topic)
        return bool(found) and all(
            self._metadata.leader_of(one.state.topic_partition) is not None for one in found.values()
        )

    async def _until_shown(self, is_shown: Callable[[], bool], timeout_ms: int) -> None:
        """Wait until this broker's metadata show a change, for a short time at most."""
        deadline = time.monotonic() + min(timeout_ms, _SHOWN_WITHIN_MS) / 1000
        while not is_shown() and (left := deadline - time.monotonic()) > 0:
            await self._metadata.wait_changed(max(1, int(left * 1000)))

    async def create_partitions(
        self,
        topics: Sequence[NewPartitions],
        timeout_ms: int,
        mutate: Mutate = unlimited,
        *,
        validate_only: bool = False,
    ) -> list[TopicOutcome]:
        """Have partitions added; return when each new one has a leader in this broker's metadata."""
        del mutate
        wanted = [
            create_partitions.CreatePartitionsTopic(
                one.name,
                one.total_count,
                [create_partitions.CreatePartitionsAssignment(replicas) for replicas in one.assignment] or None,
            )
            for one in topics
        ]
        request = create_partitions.CreatePartitionsRequest(wanted, timeout_ms, validate_only)

        async def ask() -> list[TopicOutcome]:
            response = await self._forwarding.ask(apis.CREATE_PARTITIONS, request)
            return [_topic_outcome(one) for one in response.results]

        outcomes = await _outcomes(topics, ask)
        if not validate_only:
            counts = {one.name: one.total_count for one in topics}
            made = [one.name for one in outcomes if one.error is ErrorCode.NONE]
            await self._until_shown(
                lambda: all(
                    len(self._metadata.partitions(name)) >= counts[name] and self._is_led(name) for name in made
                ),
                timeout_ms,
            )
        return outcomes

    async def delete_topics(
        self, names: Sequence[str], timeout_ms: int, mutate: Callable[[str], None] = unlimited
    ) -> list[TopicOutcome]:
        """Have topics deleted; return when this broker's metadata no longer show them."""
        del mutate
        request = delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState(name) for name in names], timeout_ms=timeout_ms
        )

        async def ask() -> list[TopicOutcome]:
            response = await self._forwarding.ask(apis.DELETE_TOPICS, request)
            return [_topic_outcome(one) for one in response.responses]

        outcomes = await _outcomes([NewTopic(name) for name in names], ask)
        deleted = [one.name for one in outcomes if one.error is ErrorCode.NONE]
        await self._until_shown(lambda: not any(map(self._metadata.knows_topic, deleted)), timeout_ms)
        return outcomes

    # Partitions

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, *, unclean: bool, timeout_ms: int
    ) -> dict[TopicPartition, Verdict] | None:
        """Have leaders elected on demand."""
        named = None if partitions is None else _by_topic(partitions, elect_leaders.TopicPartitions)
        request = elect_leaders.ElectLeadersRequest(_UNCLEAN if unclean else _PREFERRED, named, timeout_ms)
        response = await self._forwarding.ask(apis.ELECT_LEADERS, request)
        _check(response)
        return {
            TopicPartition(topic.topic, one.partition_id): (ErrorCode.of(one.error_code), one.error_message or "")
            for topic in response.replica_election_results
            for one in topic.partition_result
        }

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, Verdict] | None:
        """Have reassignments begun, replaced or (None) cancelled."""
        topics: dict[str, list[reassignments.ReassignablePartition]] = {}
        for at, replicas in wanted.items():
            one = reassignments.ReassignablePartition(at.partition, None if replicas is None else list(replicas))
            topics.setdefault(at.topic, []).append(one)
        request = reassignments.AlterPartitionReassignmentsRequest(
            _REASSIGNMENT_MS, topics=[reassignments.ReassignableTopic(name, found) for name, found in topics.items()]
        )
        response = await self._forwarding.ask(apis.ALTER_PARTITION_REASSIGNMENTS, request)
        _check(response)
        return {
            TopicPartition(topic.name, one.partition_index): (ErrorCode.of(one.error_code), one.error_message or "")
            for topic in response.responses
            for one in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, Assignment] | None:
        """Return the reassignments in progress, of these partitions or (None) of all."""
        named = None if partitions is None else _by_topic(partitions, listed.ListPartitionReassignmentsTopics)
        request = listed.ListPartitionReassignmentsRequest(_REASSIGNMENT_MS, named)
        response = await self._forwarding.ask(apis.LIST_PARTITION_REASSIGNMENTS, request)
        _check(response)
        return {
            TopicPartition(topic.name, one.partition_index): Assignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in response.topics
            for one in topic.partitions
        }


def _creatable(topic: NewTopic) -> create_topics.CreatableTopic:
    count, factor = topic.partition_count, topic.replication_factor
    return create_topics.CreatableTopic(
        topic.name,
        _DEFAULT if count is None else count,
        _DEFAULT if factor is None else factor,
        [
            create_topics.CreatableReplicaAssignment(partition, list(replicas))
            for partition, replicas in enumerate(topic.assignment)
        ],
        [create_topics.CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )


def _topic_outcome(result: Any, topic_id: str = "") -> TopicOutcome:
    error = ErrorCode.of(result.error_code)
    return TopicOutcome(result.name or "", error, result.error_message or "", topic_id if not error else "")


async def _outcomes(
    topics: Iterable[NewTopic | NewPartitions], ask: Callable[[], Awaitable[list[TopicOutcome]]]
) -> list[TopicOutcome]:
    """Return the controller's outcome of each topic, or one error for all."""
    try:
        return await ask()
    except TidegaugeError as problem:
        return [TopicOutcome(one.name, problem.code, problem.message) for one in topics]


def _by_topic(partitions: Collection[TopicPartition], make: Callable[[str, list[int]], Any]) -> list[Any]:
    found: dict[str, list[int]] = {}
    for at in partitions:
        found.setdefault(at.topic, []).append(at.partition)
    return [make(topic, numbers) for topic, numbers in found.items()]


def _check(response: Any) -> None:
    """Refuse a response that is an error as a whole.

    Raises:
        TidegaugeError: that error.
    """
    error = ErrorCode.of(response.error_code)
    if error is not ErrorCode.NONE:
        raise TidegaugeError(error, getattr(response, "error_message", None) or error.name)
