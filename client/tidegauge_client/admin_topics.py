"""Admin requests about topics: create, delete, add partitions, elect leaders; and waiting until all brokers know of
it.

Rules:
    1. The active controller acts (``AdminBase.at_controller``) and responds once its own metadata shows the result.
    2. The ``wait_for_...`` methods return when every live broker's own metadata shows the result; a broker that does
       not respond is waited for only as long as the others count it as live.
Source: KafkaAdminClient, TopicCommand, LeaderElectionCommand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge.v1 import topics_pb2
from tidegauge_client.admin_base import RESPONSE_MARGIN_MS, AdminBase, outcomes_of, raise_for
from tidegauge_client.channels import call
from tidegauge_client.cluster import now_ms, unknown_topic
from tidegauge_client.kafka_controller import KafkaController
from tidegauge_client.metadata import ClusterInfo

MAX_REPLICATION_FACTOR = 32767
MARKED_TIMEOUT_MS = 2_000
"""How long a controller has to say whether a topic is marked for deletion."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; give counts or an assignment (broker ids of each partition), not both."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] | None = None


class TopicAdmin(AdminBase):
    """Requests about topics and leaders."""

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
        timeout_ms: float | None = None,
    ) -> str:
        """Create a topic; return its id when the controller's metadata shows a leader for each partition.

        Raises:
            TidegaugeError: the request is invalid, checked before anything is sent if possible.
                TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, ... as the controller responds. REQUEST_TIMED_OUT, the
                topic may exist all the same.
        """
        topic = NewTopic(name, partitions, replication_factor, assignment, configs)
        check_new_topic(topic)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        entry = topics_pb2.NewTopic(
            name=name,
            partition_count=partitions,
            replication_factor=replication_factor,
            assignment=[topics_pb2.ReplicaList(broker_ids=ids) for ids in assignment],
            configs=dict(configs or {}),
        )
        request = topics_pb2.CreateTopicsRequest(timeout_ms=int(limit_ms), topics=[entry])

        async def attempt(address: str, left_ms: float) -> str:
            stub = self._cluster.channels.admin(address)
            response = await call(stub.CreateTopics, request, timeout_ms=left_ms + RESPONSE_MARGIN_MS, address=address)
            raise_for(response.topics[0].status)
            return response.topics[0].topic_id

        async def at_kafka(kafka: KafkaController, left_ms: float) -> str:
            return await kafka.create_topic(
                name, partitions, replication_factor, assignment, dict(configs or {}), left_ms
            )

        return await self.at_controller(attempt, limit_ms, at_kafka)

    async def delete_topic(self, name: str, *, timeout_ms: float | None = None) -> None:
        """Delete a topic; return when the controller's metadata no longer shows it.

        Replicas on dead brokers, and with them the topic's znodes, are deleted when their brokers return.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, or REQUEST_TIMED_OUT: the topic is
                marked for deletion and will be deleted.
        """
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        request = topics_pb2.DeleteTopicsRequest(timeout_ms=int(limit_ms), names=[name])

        async def attempt(address: str, left_ms: float) -> None:
            stub = self._cluster.channels.admin(address)
            response = await call(stub.DeleteTopics, request, timeout_ms=left_ms + RESPONSE_MARGIN_MS, address=address)
            _raise_for_topic(response.topics[0], name)

        async def at_kafka(kafka: KafkaController, left_ms: float) -> None:
            await kafka.delete_topic(name, left_ms)

        await self.at_controller(attempt, limit_ms, at_kafka)

    async def create_partitions(
        self,
        name: str,
        total_count: int,
        *,
        assignment: Sequence[Sequence[int]] = (),
        timeout_ms: float | None = None,
    ) -> None:
        """Add partitions to a topic; return when each has a leader in the controller's metadata.

        Args:
            name: the topic.
            total_count: the number of partitions that it shall have.
            assignment: broker ids of each *added* partition; empty: by Kafka's algorithm.
            timeout_ms: how long to wait.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
                REASSIGNMENT_IN_PROGRESS, ... as the controller responds; REQUEST_TIMED_OUT, they may be added all the
                same.
        """
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        entry = topics_pb2.NewPartitions(
            name=name,
            total_count=total_count,
            assignment=[topics_pb2.ReplicaList(broker_ids=ids) for ids in assignment],
        )
        request = topics_pb2.CreatePartitionsRequest(timeout_ms=int(limit_ms), topics=[entry])

        async def attempt(address: str, left_ms: float) -> None:
            stub = self._cluster.channels.admin(address)
            response = await call(
                stub.CreatePartitions, request, timeout_ms=left_ms + RESPONSE_MARGIN_MS, address=address
            )
            raise_for(response.topics[0].status)

        async def at_kafka(kafka: KafkaController, left_ms: float) -> None:
            await kafka.create_partitions(name, total_count, assignment, left_ms)

        await self.at_controller(attempt, limit_ms, at_kafka)

    async def is_marked_for_deletion(self, name: str) -> bool:
        """Return whether a topic is being deleted, so that no metadata shows it.

        Kafka has no request for that. The controller is asked to grow the topic to one partition, which changes nothing
        in any case: a topic that exists has one at least, and one in deletion is refused with INVALID_TOPIC_EXCEPTION
        (KafkaApis.handleCreatePartitionsRequest). False as well where the controller does not respond.
        """
        if topic_name_problem(name) is not None:
            return False
        try:
            await self.create_partitions(name, 1, timeout_ms=MARKED_TIMEOUT_MS)
        except TidegaugeError as refusal:
            return refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        return False

    async def unknown_topic(self, name: str) -> TidegaugeError:
        """Return the error for a topic in no metadata: in deletion, or unknown."""
        is_marked = await self.is_marked_for_deletion(name)
        words = marked_for_deletion(name) if is_marked else unknown_topic(name, await self._topics_there())
        return TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, words)

    async def _topics_there(self) -> list[str]:
        """Return the names of all topics, or none without a response."""
        try:
            return sorted((await self.metadata()).topics)
        except TidegaugeError:
            return []

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None,
        *,
        unclean: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Elect the preferred leaders, or unclean ones if there is no leader.

        Args:
            partitions: the partitions; None: all that need an election.
            unclean: whether any live replica may lead if no in-sync one is alive. Acknowledged records may be lost.
            timeout_ms: how long to wait.

        Returns:
            For each partition None if a leader was elected, else why not: ELECTION_NOT_NEEDED,
                PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, ...

        Raises:
            TidegaugeError: an error of the whole request.
        """
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        request = topics_pb2.ElectLeadersRequest(
            election_type=topics_pb2.ELECTION_TYPE_UNCLEAN if unclean else topics_pb2.ELECTION_TYPE_PREFERRED,
            partitions=[topics_pb2.ElectPartition(topic=at.topic, partition=at.partition) for at in partitions or ()],
            all_partitions=partitions is None,
            timeout_ms=int(limit_ms),
        )

        async def attempt(address: str, left_ms: float) -> dict[TopicPartition, TidegaugeError | None]:
            stub = self._cluster.channels.admin(address)
            response = await call(stub.ElectLeaders, request, timeout_ms=left_ms + RESPONSE_MARGIN_MS, address=address)
            raise_for(response.status)
            return outcomes_of(response.partitions)

        async def at_kafka(kafka: KafkaController, left_ms: float) -> dict[TopicPartition, TidegaugeError | None]:
            return await kafka.elect_leaders(partitions, unclean=unclean, timeout_ms=left_ms)

        return await self.at_controller(attempt, limit_ms, at_kafka)

    # Until all brokers know ---------------------------------------------------------------------------------

    async def wait_for_topic(self, name: str, *, partitions: int = 0, timeout_ms: float = 30_000) -> None:
        """Wait until every live broker's metadata shows the topic with a leader for each partition.

        Args:
            name: the topic.
            partitions: the minimum number of partitions.
            timeout_ms: how long to wait.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, naming the broker that lags.
        """

        def lag(view: ClusterInfo) -> str | None:
            topic = view.topics.get(name)
            if topic is None or topic.error is not ErrorCode.NONE:
                return f"does not know topic '{name}' yet"
            if len(topic.partitions) < partitions:
                return f"knows {len(topic.partitions)} of {counted(partitions, 'partition')} of topic '{name}' yet"
            leaderless = [info for info in topic.partitions.values() if info.leader_id is None]
            return f"knows no leader of {leaderless[0].topic_partition} yet" if leaderless else None

        await self._until_all_brokers([name], lag, timeout_ms)

    async def wait_for_topic_gone(self, name: str, *, timeout_ms: float = 30_000) -> None:
        """Wait until no live broker's metadata shows the topic.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, naming the broker that lags.
        """

        def lag(view: ClusterInfo) -> str | None:
            topic = view.topics.get(name)
            return f"still knows topic '{name}'" if topic is not None and topic.error is ErrorCode.NONE else None

        await self._until_all_brokers([name], lag, timeout_ms)

    async def wait_for_epochs(self, leader_epochs: Mapping[TopicPartition, int], *, timeout_ms: float = 30_000) -> None:
        """Wait until every live broker's metadata shows these leader epochs, or later ones.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, naming the broker that lags.
        """

        def lag(view: ClusterInfo) -> str | None:
            for at, epoch in leader_epochs.items():
                info = view.partition(at)
                if info is not None and info.leader_epoch < epoch:
                    return f"does not know the new leader of {at} yet"
            return None

        await self._until_all_brokers({at.topic for at in leader_epochs}, lag, timeout_ms)

    async def _until_all_brokers(
        self, topics: Collection[str], lag: Callable[[ClusterInfo], str | None], timeout_ms: float
    ) -> None:
        deadline_ms = now_ms() + timeout_ms
        while (problem := await self._lag_of_all(topics, lag)) is not None:
            if now_ms() >= deadline_ms:
                raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, problem)
            await asyncio.sleep(0.05)

    async def _lag_of_all(self, topics: Collection[str], lag: Callable[[ClusterInfo], str | None]) -> str | None:
        brokers = list((await self.metadata([])).brokers.values())
        views = await asyncio.gather(
            *(self.metadata_of(broker.address, topics) for broker in brokers), return_exceptions=True
        )
        for broker, view in zip(brokers, views, strict=True):
            if isinstance(view, TidegaugeError):
                return f"broker {broker.id} at {broker.address} did not respond"
            if isinstance(view, BaseException):
                raise view
            problem = lag(view)
            if problem is not None:
                return f"broker {broker.id} {problem}"
        return None


def marked_for_deletion(name: str) -> str:
    """Return the sentence for a topic whose deletion has not ended."""
    return (
        f"Topic '{name}' is marked for deletion, so no broker leads or shows it; its deletion ends, and the name is "
        "free again, when every broker with a replica of it has deleted its log: start those that are down "
        "(`tidegauge describe-cluster` shows those that are up)"
    )


def _raise_for_topic(result: topics_pb2.TopicResult, name: str) -> None:
    """Raise as ``raise_for`` does, with the client's own sentence for an unknown topic."""
    if ErrorCode.of(result.status.error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_topic(name))
    raise_for(result.status)


def check_new_topic(topic: NewTopic) -> None:
    """Reject what Kafka's own client rejects, before anything is contacted.

    Raises:
        TidegaugeError: INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
            INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, in Kafka's words.
    """
    problem = topic_name_problem(topic.name)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if topic.assignment and (topic.partitions is not None or topic.replication_factor is not None):
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Give counts or a replica assignment, not both.")
    if topic.partitions is not None and topic.partitions < 1:
        raise TidegaugeError(ErrorCode.INVALID_PARTITIONS, "The partitions must be greater than 0")
    factor = topic.replication_factor
    if factor is not None and not 1 <= factor <= MAX_REPLICATION_FACTOR:
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor must be between 1 and {MAX_REPLICATION_FACTOR} inclusive",
        )
    check_same_size(topic.assignment)
    if any(len(set(ids)) != len(ids) for ids in topic.assignment):
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partition replica lists may not contain duplicate entries."
        )


def check_same_size(assignment: Sequence[Sequence[int]]) -> None:
    """Reject an assignment whose partitions differ in their number of replicas, as Kafka's tools do.

    Raises:
        TidegaugeError: INVALID_REPLICA_ASSIGNMENT.
    """
    for number, replicas in enumerate(assignment):
        if not replicas or len(replicas) != len(assignment[0]):
            raise TidegaugeError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {number} has different replication factor: {list(replicas)}",
            )
