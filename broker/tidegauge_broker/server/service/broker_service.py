"""The service of a broker for its callers, in plain values: the door between every wire and the core.

No wire's types appear here (an import rule holds it); the packages of ``wire`` translate, and decide nothing. Every
method returns errors as values with Kafka's numbers; only a defect raises.
Source: Kafka's KafkaApis.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from tidegauge.cluster_metadata import MalformedMetadata, MetadataUnavailable
from tidegauge.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Endpoint,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.metadata_update import MetadataUpdate
from tidegauge.partition import INTERNAL_TOPICS, TopicPartition, topic_name_problem
from tidegauge.settings import ListChange, Values
from tidegauge.wall_time import WallTime
from tidegauge.with_turns import in_portions
from tidegauge_broker.log.records import BatchSearch, KnownResults
from tidegauge_broker.replica.effect_executor import FetchResults
from tidegauge_broker.replica.messages import (
    CONSUMER,
    DeleteRecordsResult,
    EpochEndResult,
    EpochLookup,
    FetchRequest,
    LogOnDisk,
    OffsetLookup,
    OffsetResult,
    ProduceRequest,
    ProduceResult,
    RecordsToDelete,
    ReplicaView,
)
from tidegauge_broker.replica.preparation import Preparation
from tidegauge_broker.replica.producer_state import ProducerEntry
from tidegauge_broker.replica.refusals import Refusal
from tidegauge_broker.server.cluster.ports import StoredTopicIds
from tidegauge_broker.server.configs.dynamic_configs import DynamicConfigs
from tidegauge_broker.server.configs.resource_types import ConfigResourceType
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.registration.controller_client import ProducerIds
from tidegauge_broker.server.replication.log_dir_views import LogDirectoryView, describe_log_directories, log_on_disk
from tidegauge_broker.server.replication.offset_search import OffsetSearch
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.service.admin_outcomes import (
    AlteredConfigs,
    DescribedConfigs,
    ElectionType,
    PartitionOutcomes,
    Reassignments,
)
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.cluster_view import (
    ClusterView,
    PartitionViews,
    TopicView,
    Unreachable,
    endpoints_through,
    partition_view,
)
from tidegauge_broker.server.service.gate import Gate
from tidegauge_broker.server.service.group_service import GroupService
from tidegauge_broker.server.service.middleware import Middleware, Responded, to_all, wrap
from tidegauge_broker.server.service.old_formats import ReadRecords, for_old_client, is_light
from tidegauge_broker.server.service.open_produces import OpenProduces
from tidegauge_broker.server.service.pending_responses import PendingResponse, PendingResponses
from tidegauge_broker.server.service.produce_preparation import ProducePreparation
from tidegauge_broker.server.service.produce_verification import ProduceVerification
from tidegauge_broker.server.service.records_pool import RecordsPool
from tidegauge_broker.server.service.transaction_service import TransactionService
from tidegauge_broker.server.share.service import ShareService
from tidegauge_controller.admin import Mutate, NewPartitions, NewTopic, TopicOutcome, unlimited
from tidegauge_controller.port import Controller

LOG = logging.getLogger("tidegauge.service")
_DELETIONS_PER_STEP = 250


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A fetch response.

    Attributes:
        partitions: result and records of each partition.
        pending: the memory that the response takes; the wire releases it when the response has been written, or when
            its connection has closed.
    """

    partitions: FetchResults
    pending: PendingResponse


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
        groups: GroupService,
        transactions: TransactionService,
        verification: ProduceVerification,
        control_plane_listener: str = "",
        gate: Gate | None = None,
        middleware: Sequence[Middleware] = (),
        responded: Sequence[Responded] = (),
        stored_topic_ids: StoredTopicIds | None = None,
    ) -> None:
        self.stored_topic_ids = stored_topic_ids
        self.gate = gate
        self.responded = to_all(responded)
        self.cluster_id = cluster_id
        self.settings = settings
        self.control_plane_listener = control_plane_listener
        self._replicas = replicas
        self._metadata = metadata
        self._controller = controller
        self._producer_ids = producer_ids
        self.configs = configs
        self._create_topic = create_topic
        self.groups = groups
        self.share: ShareService | None = None  # set before the first request, if share groups are served
        self.transactions = transactions
        self.records_pool = RecordsPool()
        self.verification = ProducePreparation(verification, self._preparations, self.records_pool)
        self.responses = PendingResponses(
            cache(lambda: settings.integer("queued.max.response.bytes")),  # each fetch asks for both several times
            cache(lambda: settings.integer("fetch.max.bytes")),  # neither is dynamic
            time.monotonic,
        )
        self._complete_for = -1
        self._complete = asyncio.Event()
        for one in middleware:
            wrap(self, one)
            wrap(groups, one)
            wrap(transactions, one)

    @property
    def wall(self) -> WallTime:
        """The time by which the wall clock is ahead of the broker's own clock."""
        return self._replicas.core.wall

    @property
    def broker_id(self) -> int:
        """This broker."""
        return self._replicas.core.broker_id

    # Clients

    def produce(self, request: ProduceRequest) -> asyncio.Future[Sequence[ProduceResult]]:
        """Append now; the future is done when acks is fulfilled."""
        return self._replicas.produce(request)

    def _preparations(self, request: ProduceRequest) -> Sequence[Preparation]:
        return self._replicas.preparations(request)

    def open_produces(self) -> OpenProduces:
        """Return the order keeper of one connection's produce requests, with their limit."""
        return OpenProduces(self.produce)

    async def fetch(self, caller: Caller, request: FetchRequest) -> FetchResponse:
        """Read for a consumer or a follower; the wire must release the response's ``pending`` when it is written.

        A consumer whose connection does not read its responses waits here (``PendingResponses``).
        """
        if request.replica_id != CONSUMER:
            return await self._fetch(request, self.responses.for_follower(caller.connection))
        pending = self.responses.room_at_once(caller.connection) or await self.responses.room(caller.connection)
        with self.responses.gathering(caller.connection, min(request.min_bytes, request.max_bytes)):
            return await self._fetch(request, pending)

    async def _fetch(self, request: FetchRequest, pending: PendingResponse) -> FetchResponse:
        """Read; the response counts no longer when the read fails."""
        try:
            return FetchResponse(await self._replicas.fetch(request, pending), pending)
        except BaseException:
            pending.release()
            raise

    def begin_follower_fetch(
        self, caller: Caller, request: FetchRequest, pending: PendingResponse
    ) -> asyncio.Future[FetchResults]:
        """Read for a follower; the future is done when there is a response, mostly when the leader appends.

        Args:
            caller: the follower's connection.
            request: the fetch.
            pending: what ``responses`` has for it; the wire must release it when the response is written.
        """
        del caller
        return self._replicas.begin_fetch(request, pending)

    def withhold(self, response: FetchResponse) -> None:
        """Give up a response that its client does not get: it exceeds a quota."""
        response.pending.release()

    async def for_old_client(
        self, at: TopicPartition, records: bytes, magic: int | None, from_offset: int, *, reads_zstd: bool
    ) -> ReadRecords:
        """Return records that were fetched as an old client reads them; see ``old_formats``."""
        partition = self._replicas.core.partition(at)
        if partition is None:
            return ReadRecords(records=records)
        convert = partial(for_old_client, partition.rules, records, magic, from_offset, reads_zstd=reads_zstd)
        if is_light(records, magic):
            return convert()
        return await self.records_pool.run(lambda pause: convert(pause=pause))

    def admit_follower(self, cluster_id: str, truncation_rule: str) -> tuple[ErrorCode, str]:
        """Return why a broker may not replicate from here, by cluster and rule.

        One truncation rule holds for the cluster: two rules would not agree on where logs diverge.
        """
        own_rule = self.settings.text("replica.truncation.rule")
        if cluster_id != self.cluster_id:
            return (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"This broker belongs to cluster {self.cluster_id}, the follower to {cluster_id}",
            )
        if truncation_rule != own_rule:
            return (
                ErrorCode.INVALID_REQUEST,
                f"This broker's replica.truncation.rule is {own_rule}, the follower's is {truncation_rule}",
            )
        return ErrorCode.NONE, ""

    async def list_offset(self, lookup: OffsetLookup) -> tuple[OffsetResult, int]:
        """Return a time's offset and the found timestamp (-1: none).

        A long search has turns of the event loop; one whose log changes meanwhile begins again (``offset_search``).
        """
        known = KnownResults()
        try:
            while True:
                found = self._replicas.list_offset(lookup)
                if not isinstance(found, OffsetSearch):
                    return found
                result = await found.carry_out(known, self._search_elsewhere)
                if result is not None:
                    return result
        except TidegaugeError as problem:
            return OffsetResult(problem.code, problem.message), -1

    async def _search_elsewhere(self, question: BatchSearch) -> object:
        search, *rest = question
        return await self.records_pool.run(partial(search, *rest))

    def old_style_offsets(self, lookup: OffsetLookup, count: int) -> tuple[ErrorCode, Sequence[int]]:
        """Return starts of segments older than a time, newest first (ListOffsets v0)."""
        try:
            return self._replicas.old_style_offsets(lookup, count)
        except TidegaugeError as problem:
            return problem.code, ()

    def offset_for_leader_epoch(self, question: EpochLookup) -> EpochEndResult:
        """Return where an epoch ends here, if this broker leads."""
        return self._replicas.core.offset_for_leader_epoch(question)

    async def delete_records(self, wanted: Sequence[RecordsToDelete], timeout_ms: int) -> Sequence[DeleteRecordsResult]:
        """Delete the records below offsets, for good."""
        internal = {item.topic_partition: None for item in wanted if item.topic_partition.topic in INTERNAL_TOPICS}
        refused = [
            DeleteRecordsResult(
                at, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {at.topic}"
            )
            for at in internal
        ]
        allowed = [item for item in wanted if item.topic_partition not in internal]
        delete = partial(self._replicas.delete_records, timeout_ms=timeout_ms)
        return [*refused, *await in_portions(allowed, delete, _DELETIONS_PER_STEP)]

    def init_producer_id(self) -> tuple[ErrorCode, str, int]:
        """Return a new producer id, or an error without a block."""
        producer_id = self._producer_ids.next()
        if producer_id is None:
            message = "No block of producer ids is at hand yet; try again"
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message, -1
        return ErrorCode.NONE, "", producer_id

    def describe_replicas(self, now_ms: int, topics: Collection[str]) -> Iterator[tuple[ReplicaView, LogOnDisk]]:
        """Yield this broker's replicas, each with its log on disk, as they are when they come; no topics: all."""
        logs = self._replicas.logs
        return (
            (view, log_on_disk(logs, view.topic_partition))
            for view in self._replicas.core.hosted.describe(now_ms, topics or None)
        )

    def refusals(self, now_ms: int, topics: Collection[str]) -> list[tuple[Refusal, int]]:
        """Return partitions' last refused requests and ages in ms; no topics: all."""
        refused = self._replicas.core.hosted.refusals.of(topics or None)
        return [(self._with_own_id(one), max(0, now_ms - at)) for one, at in refused]

    def _with_own_id(self, refusal: Refusal) -> Refusal:
        """Return a refusal with the log's topic id, hosted or not."""
        log = None if refusal.own_topic_id else self._replicas.logs.get(refusal.topic_partition)
        return refusal if log is None else replace(refusal, own_topic_id=log.topic_id)

    def describe_log_directories(self) -> list[LogDirectoryView]:
        """Return this broker's log directories, with the replicas in each."""
        return describe_log_directories(self._replicas.logs, self._replicas.core.high_watermarks())

    async def alter_replica_log_dirs(self, wanted: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, ErrorCode]:
        """Begin to move replicas to other log directories of this broker."""
        return await self._replicas.changes.alter_log_directories(wanted)

    def describe_producers(self, topic_partition: TopicPartition) -> Sequence[ProducerEntry] | ErrorCode:
        """Return a leader's view of idempotent producers, if this broker leads."""
        return self._replicas.core.describe_producers(topic_partition)

    def metadata(
        self,
        caller: Caller,
        topics: Collection[str] | None,
        *,
        may_create: bool,
        unreachable: Unreachable = Unreachable.DEAD,
    ) -> ClusterView:
        """Return this broker's metadata cache as the caller's listener shows it.

        Args:
            caller: whose listener it is.
            topics: by name; None: all.
            may_create: an unknown topic is created in the background if the broker allows it too
                (``auto.create.topics.enable``); it has LEADER_NOT_AVAILABLE then.
            unreachable: how live brokers without the caller's listener are shown.
        """
        creates = may_create and self.settings.flag("auto.create.topics.enable")
        created: set[str] = set()
        for name in topics or () if creates else ():
            if not self._metadata.knows_topic(name) and topic_name_problem(name) is None:
                self._create_topic(name)
                created.add(name)
        endpoints = list(self._metadata.endpoints())
        brokers = endpoints_through(caller.listener, endpoints)
        live = {endpoint.broker_id for endpoint in brokers}
        return ClusterView(
            self.cluster_id,
            *self._metadata.controller(self._controller.active_controller_id),
            brokers,
            [
                TopicView(name, ErrorCode.LEADER_NOT_AVAILABLE, "The topic is being created.")
                if name in created
                else self._topic(name, live, unreachable)
                for name in (self._metadata.topics() if topics is None else topics)
            ],
            [one for one in endpoints if one.broker_id not in live] if unreachable is Unreachable.ALIVE else (),
        )

    def fenced_brokers(self, caller: Caller) -> list[Endpoint]:
        """Return the fenced brokers with the caller's listener, at its addresses."""
        return endpoints_through(caller.listener, self._metadata.fenced_endpoints())

    def _topic(self, name: str, live: Collection[int], unreachable: Unreachable) -> TopicView:
        entries = list(self._metadata.partitions(name).values())
        if entries:
            topic_id = entries[0].state.topic_id
            registered = self._metadata.live_brokers()
            view = partial(partition_view, live=live, registered=registered, unreachable=unreachable)
            return TopicView(name, topic_id=topic_id, partitions=PartitionViews(entries, view))
        problem = topic_name_problem(name)
        if problem is not None:
            return TopicView(name, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return TopicView(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Return whether this broker's metadata cache has the partition."""
        return self._metadata.knows(topic_partition)

    def topic_name(self, topic_id: str) -> str | None:
        """Return a topic's name by its id; None if unknown here."""
        return self._metadata.topic_name(topic_id)

    def replica_topic_id(self, topic_partition: TopicPartition) -> str:
        """Return the topic id of this broker's replica; empty without one."""
        return self._replicas.topic_id(topic_partition)

    def topic_id(self, name: str) -> str | None:
        """Return a topic's id by its name; None if unknown here."""
        return self._metadata.topic_id(name)

    def endpoint(self, caller: Caller, broker_id: int) -> Endpoint | None:
        """Return a live broker's address on the caller's listener, or None."""
        endpoint = self._metadata.endpoint(broker_id)
        return None if endpoint is None else endpoint.through(caller.listener)

    def addresses_on(self, broker_id: int, listeners: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Return the addresses of a live broker by security protocol.

        Args:
            broker_id: the broker's.
            listeners: names of listeners by security protocol; the first one that the broker has counts.
        """
        endpoint = self._metadata.endpoint(broker_id)
        known = {} if endpoint is None else {one.name: one.address for one in endpoint.listeners}
        found = {protocol: [known[name] for name in names if name in known] for protocol, names in listeners.items()}
        return {protocol: addresses[0] for protocol, addresses in found.items() if addresses}

    # Admins

    @property
    def is_controller(self) -> bool:
        """Whether this broker takes requests to the controller: as the active one that it knows, or to forward."""
        return self._controller.active_controller_id == self.broker_id or self._controller.forwards

    async def create_topics(
        self, topics: Sequence[NewTopic], timeout_ms: int, mutate: Mutate = unlimited, *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics, if this broker is the controller; ``mutate`` raises where a quota refuses one."""
        return await self._controller.create_topics(topics, timeout_ms, mutate, validate_only=validate_only)

    async def create_partitions(
        self,
        topics: Sequence[NewPartitions],
        timeout_ms: int,
        mutate: Mutate = unlimited,
        *,
        validate_only: bool = False,
    ) -> list[TopicOutcome]:
        """Add partitions, if this broker is the controller; ``mutate`` raises where a quota refuses them."""
        return await self._controller.create_partitions(topics, timeout_ms, mutate, validate_only=validate_only)

    async def delete_topics(
        self, names: Sequence[str], timeout_ms: int, mutate: Mutate = unlimited
    ) -> list[TopicOutcome]:
        """Delete topics, if this broker is the controller; ``mutate`` raises where a quota refuses one."""
        return await self._controller.delete_topics(
            names, timeout_ms, lambda name: mutate(len(self._metadata.partitions(name)))
        )

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, election_type: int, timeout_ms: int
    ) -> PartitionOutcomes:
        """Elect leaders on demand, if this broker is the controller.

        Args:
            partitions: None: all that need it.
            election_type: one of ``ElectionType``; any other number is refused.
            timeout_ms: how long to wait for this broker's metadata to show the new leaders.
        """
        if election_type not in tuple(ElectionType):
            return PartitionOutcomes(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
        unclean = election_type == ElectionType.UNCLEAN
        return _outcomes(await self._controller.elect_leaders(partitions, unclean=unclean, timeout_ms=timeout_ms))

    async def alter_reassignments(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> PartitionOutcomes:
        """Begin, replace or (None) cancel reassignments, if this broker is the controller."""
        return _outcomes(await self._controller.alter_reassignments(wanted))

    async def list_reassignments(self, partitions: Collection[TopicPartition] | None) -> Reassignments:
        """List the reassignments in progress of these partitions or (None) of all, if this broker is the controller."""
        found = await self._controller.list_reassignments(partitions)
        return Reassignments(ErrorCode.NOT_CONTROLLER) if found is None else Reassignments(partitions=found)

    async def alter_configs(
        self,
        resource_type: int,
        name: str,
        changed: Mapping[str, str | ListChange],
        deleted: Sequence[str] | None,
        *,
        validate_only: bool = False,
    ) -> AlteredConfigs:
        """Change dynamic settings of one resource: all of the request, or nothing.

        Args:
            resource_type: one of ``ConfigResourceType``; any other number is refused.
            name: of a topic, a group or a broker; empty for the default of all brokers.
            changed: new values, or changes of lists, by setting.
            deleted: settings that return to their default; None: all that are not among the changed ones.
            validate_only: say what would become of it, and change nothing.
        """
        try:
            match resource_type:
                case ConfigResourceType.TOPIC:
                    number = await self.configs.alter_topic(name, changed, deleted, validate_only=validate_only)
                case ConfigResourceType.BROKER:
                    number = await self.configs.alter_broker(name, changed, deleted, validate_only=validate_only)
                case ConfigResourceType.GROUP if self.groups.has_group_settings:
                    number = await self.configs.groups.alter(name, changed, deleted, validate_only=validate_only)
                case _:
                    return AlteredConfigs(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
        except TidegaugeError as problem:
            return AlteredConfigs(problem.code, problem.message)
        except (MalformedMetadata, MetadataUnavailable) as problem:
            return AlteredConfigs(ErrorCode.UNKNOWN_SERVER_ERROR, f"The settings could not be read: {problem}")
        return AlteredConfigs(change_number=number)

    async def describe_configs(self, resource_type: int, name: str) -> DescribedConfigs:
        """Return a resource's settings; an empty name: all brokers; see ``alter_configs``."""
        try:
            match resource_type:
                case ConfigResourceType.TOPIC:
                    views = await self.configs.describe_topic(name)
                case ConfigResourceType.BROKER:
                    views = self.configs.describe_broker(name)
                case ConfigResourceType.GROUP if self.groups.has_group_settings:
                    views = await self.configs.groups.describe(name)
                case ConfigResourceType.CLIENT_METRICS:
                    message = "Config type client-metrics is only supported on KRaft clusters"
                    return DescribedConfigs(ErrorCode.INVALID_REQUEST, message)
                case _:
                    return DescribedConfigs(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}")
        except TidegaugeError as problem:
            return DescribedConfigs(problem.code, problem.message)
        except MetadataUnavailable as problem:
            return DescribedConfigs(ErrorCode.UNKNOWN_SERVER_ERROR, f"The settings could not be read: {problem}")
        return DescribedConfigs(entries=views, applied_change=self.configs.applied_change)

    # Requests of the controller

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> PartitionsResponse:
        """Become leader or follower."""
        return await self._replicas.control.leader_and_isr(request, self.configs.topics.read_values)

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Take in what ZooKeeper's controller sends of the cluster."""
        error = self._replicas.control.fence("UpdateMetadata", request.header)
        if error is ErrorCode.NONE:
            self.metadata_changed(request.update)
            if request.startup_complete:
                self.startup_completed(request.header.broker_epoch)
        return error

    def startup_completed(self, broker_epoch: int) -> None:
        """Take in that all is there that a registration brings."""
        self._complete_for = broker_epoch
        self._complete.set()

    def metadata_changed(self, update: MetadataUpdate) -> None:
        """Fill the metadata cache, and notify all that look at it."""
        changed = {one.state.topic_partition.topic for one in update.partitions}
        former = {topic: self._metadata.id_of(topic) for topic in changed}
        deleted = self._metadata.deleted_by(update)
        self._metadata.update(update)
        self.transactions.metadata_updated()
        for topic in {at.topic for at in deleted if not self._metadata.knows_topic(at.topic)}:
            self.configs.topics.forget(topic)
        self.groups.metadata_updated(deleted, changed, former)

    async def until_startup_complete(self) -> None:
        """Return once the controller has sent all for the latest registration.

        Call it when this broker has registered. Requests for an earlier process in its place, or for an earlier
        registration, may still arrive and do not count; the controller may be quicker than ZooKeeper's response.
        """
        while self._complete_for < self._replicas.core.broker_epoch:
            self._complete.clear()
            await self._complete.wait()

    async def stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        """Stop replicas."""
        return await self._replicas.control.stop_replica(request)

    # Requests of brokers to the controller

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Pass a leader's proposals to the controller."""
        return await self._controller.alter_partition(request)

    async def controlled_topic_names(self, topic_ids: Collection[str]) -> dict[str, str] | None:
        """Return topics' names by the controller's metadata; None: it is elsewhere.

        Unlike ``topic_name``, which reads this broker's metadata cache, it knows a topic before any broker does.
        """
        return await self._controller.topic_names(topic_ids)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, list[TopicPartition]]:
        """Ask the controller to move leaders away from a broker that stops."""
        return await self._controller.controlled_shutdown(broker_id, broker_epoch)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, int, int]:
        """Ask the controller for a block of producer ids."""
        return await self._controller.allocate_producer_ids(broker_id, broker_epoch)


def _outcomes(found: Mapping[TopicPartition, tuple[ErrorCode, str]] | None) -> PartitionOutcomes:
    """Return what the controller decided; None: this broker is not the controller."""
    return PartitionOutcomes(ErrorCode.NOT_CONTROLLER) if found is None else PartitionOutcomes(partitions=found)
