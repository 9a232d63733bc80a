"""What a broker does for those who ask, in plain values: the layer between the wire and the core.

No gRPC and no generated type appears here (an import rule holds it); the rooms of ``wire`` translate. Every method
answers errors as values with Kafka's numbers; only a defect raises.
Source: Kafka's KafkaApis (kafka-behaviour 2, 8.8, 8.20, 11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Endpoint,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import INTERNAL_TOPICS, TopicPartition, topic_name_problem
from tidegauge.settings import Values
from tidegauge_broker.replica.messages import (
    DeleteRecordsResult,
    EpochAnswer,
    EpochQuestion,
    FetchRequest,
    OffsetAnswer,
    ProduceRequest,
    ProduceResult,
    RecordsToDelete,
    ReplicaView,
)
from tidegauge_broker.server.configs.dynamic_configs import DynamicConfigs
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.registration.controller_client import ProducerIds
from tidegauge_broker.server.replication.replica_manager import FetchAnswer, ReplicaManager
from tidegauge_controller.admin import NewPartitions, NewTopic, TopicOutcome
from tidegauge_controller.controller import Controller
from tidegauge_controller.decisions.context import Assignment

LOG = logging.getLogger("tidegauge.service")


@dataclass(slots=True)
class TopicView:
    """A topic as the metadata cache shows it."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ""
    partitions: Sequence[UpdateMetadataPartition] = ()


@dataclass(slots=True)
class ClusterView:
    """One broker's metadata cache."""

    cluster_id: str
    controller_id: int | None
    controller_epoch: int
    brokers: Sequence[Endpoint]
    topics: Sequence[TopicView] = field(default_factory=list)


class BrokerService:
    """The requests of clients, followers, admins, the controller, and brokers that ask the controller."""

    def __init__(
        self,
        *,
        cluster_id: str,
        settings: Values,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        controller: Controller,
        producer_ids: ProducerIds,
        configs: DynamicConfigs,
        create_topic: Callable[[str], None],
        logical_clock: LogicalClock,
    ) -> None:
        self.cluster_id = cluster_id
        self.settings = settings
        self._replicas = replicas
        self._metadata = metadata
        self._controller = controller
        self._producer_ids = producer_ids
        self.configs = configs
        self._create_topic = create_topic
        self.logical_clock = logical_clock
        self._complete_for = -1
        self._complete = asyncio.Event()

    @property
    def broker_id(self) -> int:
        """This broker."""
        return self._replicas.core.broker_id

    # Clients

    def produce(self, request: ProduceRequest) -> asyncio.Future[Sequence[ProduceResult]]:
        """Append now; the future is done when acks is fulfilled."""
        return self._replicas.produce(request)

    async def fetch(self, request: FetchRequest) -> FetchAnswer:
        """Read for a consumer or a follower."""
        return await self._replicas.fetch(request)

    def list_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int | None, timestamp_ms: int
    ) -> tuple[OffsetAnswer, int]:
        """The offset for a time, and the timestamp that was found (-1: none)."""
        try:
            return self._replicas.list_offset(topic_partition, current_leader_epoch, timestamp_ms)
        except TidegaugeError as problem:
            return OffsetAnswer(problem.code, problem.message), -1

    def offset_for_leader_epoch(self, question: EpochQuestion) -> EpochAnswer:
        """Where an epoch ends here, if this broker leads."""
        return self._replicas.core.offset_for_leader_epoch(question)

    async def delete_records(self, wanted: Sequence[RecordsToDelete], timeout_ms: int) -> Sequence[DeleteRecordsResult]:
        """Delete the records below offsets, for good."""
        internal = [item.topic_partition for item in wanted if item.topic_partition.topic in INTERNAL_TOPICS]
        refused = [
            DeleteRecordsResult(
                at, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {at.topic}"
            )
            for at in internal
        ]
        allowed = [item for item in wanted if item.topic_partition not in internal]
        return [*refused, *await self._replicas.delete_records(allowed, timeout_ms)]

    def init_producer_id(self) -> tuple[ErrorCode, int]:
        """A new producer id, or why there is none yet."""
        producer_id = self._producer_ids.next()
        if producer_id is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1
        return ErrorCode.NONE, producer_id

    def describe_replicas(self, now_ms: int, topics: Collection[str]) -> list[tuple[ReplicaView, int]]:
        """This broker's replicas and their sizes in bytes; no topics: all."""
        views = self._replicas.core.describe(now_ms, topics or None)
        sizes = self._replicas.sizes_bytes([view.topic_partition for view in views])
        return [(view, sizes.get(view.topic_partition, 0)) for view in views]

    def metadata(self, topics: Collection[str] | None, *, may_create: bool) -> ClusterView:
        """This broker's metadata cache; None: all topics.

        An unknown topic is created on the side where client and broker both allow it.
        """
        if may_create and self.settings.flag("auto.create.topics.enable"):
            for name in topics or ():
                if not self._metadata.knows_topic(name) and topic_name_problem(name) is None:
                    self._create_topic(name)
        return ClusterView(
            self.cluster_id,
            self._controller.active_controller_id,
            self._replicas.core.controller_epoch,
            list(self._metadata.endpoints()),
            [self._topic(name) for name in (self._metadata.topics() if topics is None else topics)],
        )

    def _topic(self, name: str) -> TopicView:
        partitions = self._metadata.partitions(name)
        if partitions:
            entries = list(partitions.values())
            return TopicView(name, topic_id=entries[0].state.topic_id, partitions=entries)
        problem = topic_name_problem(name)
        if problem is not None:
            return TopicView(name, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return TopicView(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    # Admins

    async def create_topics(self, topics: Sequence[NewTopic], timeout_ms: int) -> list[TopicOutcome]:
        """Create topics, if this broker is the controller."""
        return await self._controller.create_topics(topics, timeout_ms)

    async def create_partitions(self, topics: Sequence[NewPartitions], timeout_ms: int) -> list[TopicOutcome]:
        """Add partitions, if this broker is the controller."""
        return await self._controller.create_partitions(topics, timeout_ms)

    async def delete_topics(self, names: Sequence[str], timeout_ms: int) -> list[TopicOutcome]:
        """Delete topics, if this broker is the controller."""
        return await self._controller.delete_topics(names, timeout_ms)

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, *, unclean: bool, timeout_ms: int
    ) -> dict[TopicPartition, tuple[ErrorCode, str]] | None:
        """Elect leaders; None where this broker is not the controller."""
        return await self._controller.elect_leaders(partitions, unclean=unclean, timeout_ms=timeout_ms)

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, tuple[ErrorCode, str]] | None:
        """Begin, replace or (None) cancel reassignments; None where this broker is not the controller."""
        return await self._controller.alter_reassignments(wanted)

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, Assignment] | None:
        """The reassignments that run; None where this broker is not the controller."""
        return await self._controller.list_reassignments(partitions)

    # The controller tells

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> PartitionsResponse:
        """Become leader or follower."""
        return await self._replicas.leader_and_isr(request, self.configs.topics.read_values)

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Fill the metadata cache."""
        error = self._replicas.core.check_controller_epoch(request.header)
        if error is ErrorCode.NONE:
            self._metadata.update(request)
            if request.startup_complete:
                self._complete_for = request.header.broker_epoch
                self._complete.set()
        return error

    async def until_startup_complete(self) -> None:
        """Return once the controller has told all that the latest registration brings: metadata, roles, elections.

        Call it when this broker has registered. What was sent to an earlier process in its place, or for an earlier
        registration, may still come and does not count; the controller may be quicker than ZooKeeper's answer.
        """
        while self._complete_for < self._replicas.core.broker_epoch:
            self._complete.clear()
            await self._complete.wait()

    async def stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        """Stop replicas."""
        return await self._replicas.stop_replica(request)

    # Brokers ask the controller

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """A leader's proposals."""
        return await self._controller.alter_partition(request)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, list[TopicPartition]]:
        """A broker wants to stop."""
        return await self._controller.controlled_shutdown(broker_id, broker_epoch)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, int, int]:
        """A block of producer ids."""
        return await self._controller.allocate_producer_ids(broker_id, broker_epoch)
