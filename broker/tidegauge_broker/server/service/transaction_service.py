"""The transaction requests of clients and brokers, in plain values: the service around the coordinator.

Rules:
    1. The coordinator of a transactional id is the leader of the partition of __transaction_state to which it hashes.
    2. Partitions that a client adds to a transaction must exist and not be internal. If one does not, it has its own
       error, all others get OPERATION_NOT_ATTEMPTED, and the coordinator is not asked. A broker that verifies may name
       internal topics.
    3. The offsets of a group are a partition of __consumer_offsets in the transaction; whether it exists is not asked.
    4. A marker is written to each partition as a control batch, acknowledged by all in-sync replicas, in the order of
       the request. The response waits until the group coordinator has moved or dropped the offsets of the transaction
       (KAFKA-17507). There is no check that the transaction has data on the partition.
    5. A pattern of transactional ids is of RE2's syntax and matches whole ids; an empty one is none. It is compiled
       after the coordinator has responded, so that COORDINATOR_LOAD_IN_PROGRESS goes before a bad pattern (KIP-1152).

Source: KafkaApis.handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest, handleWriteTxnMarkersRequest;
TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import overload

from tidegauge.control import NO_LEADER, Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge.settings import Values
from tidegauge.transaction_marker import TransactionMarker, make_marker
from tidegauge.transactions import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_TOPIC,
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    ListTransactions,
    ListTransactionsResult,
    TransactionRequest,
    TransactionResult,
)
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.coordinator.patterns.automaton import MatchingTooLongError, PatternError, resolve
from tidegauge_broker.replica.messages import ACKS_ALL, ProducePartition, ProduceRequest
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.coordinators.transaction_runner import TransactionRunner
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.service.caller import Caller


def _lacks_producer(marker: TransactionMarker) -> bool:
    return marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH


class TransactionService:
    """The service for transactions.

    Args:
        runner: this broker's transaction coordinator.
        groups: its group coordinator.
        replicas: where markers are written.
        metadata: this broker's view of the cluster.
        settings: this broker's.
        now_ms: the time of markers.
    """

    def __init__(
        self,
        runner: TransactionRunner,
        groups: GroupRunner,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        settings: Values,
        now_ms: Callable[[], int],
    ) -> None:
        self.runner = runner
        self._groups = groups
        self._replicas = replicas
        self._metadata = metadata
        self._settings = settings
        self._now_ms = now_ms
        self._writing: set[asyncio.Task[dict[TopicPartition, ErrorCode]]] = set()

    # The coordinator

    def partition_of(self, transactional_id: str) -> TopicPartition:
        """Return the partition of __transaction_state that holds a transactional id; rule 1."""
        known = len(self._metadata.partitions(TRANSACTION_TOPIC))
        return TopicPartition(TRANSACTION_TOPIC, partition_of(transactional_id, known or self.runner.partitions))

    def coordinator_of(self, transactional_id: str) -> int | None:
        """Return the broker that coordinates a transactional id, or None now."""
        leader = self._metadata.leader_of(self.partition_of(transactional_id))
        return None if leader == NO_LEADER else leader

    def coordinator_endpoint(self, caller: Caller, transactional_id: str) -> Endpoint | None:
        """Return a coordinator's address on the caller's listener, or None."""
        leader = self.coordinator_of(transactional_id)
        endpoint = None if leader is None else self._metadata.endpoint(leader)
        return None if endpoint is None else endpoint.through(caller.listener)

    @overload
    async def ask(self, request: InitProducerId) -> InitProducerIdResult: ...
    @overload
    async def ask(self, request: AddPartitionsToTxn) -> AddPartitionsToTxnResult: ...
    @overload
    async def ask(self, request: AddOffsetsToTxn) -> AddOffsetsToTxnResult: ...
    @overload
    async def ask(self, request: EndTxn) -> EndTxnResult: ...
    @overload
    async def ask(self, request: DescribeTransaction) -> DescribeTransactionResult: ...
    @overload
    async def ask(self, request: ListTransactions) -> ListTransactionsResult: ...
    async def ask(self, request: TransactionRequest) -> TransactionResult:
        """Hand a request to this broker's coordinator, which rejects the ids of other brokers (NOT_COORDINATOR)."""
        return await self.runner.request(request)

    async def list_matching(self, request: ListTransactions, pattern: str | None) -> ListTransactionsResult:
        """Return transactional ids that pass filters and match a pattern; rule 5.

        The ids are matched beside the event loop. INVALID_REGULAR_EXPRESSION also says that this takes too long.
        """
        found = await self.ask(request)
        if not pattern or found.error is not ErrorCode.NONE:
            return found
        try:
            ids = [one.transactional_id for one in found.transactions]
            matching = (await asyncio.to_thread(resolve, [pattern], ids))[pattern]
        except (PatternError, MatchingTooLongError):
            return ListTransactionsResult(ErrorCode.INVALID_REGULAR_EXPRESSION)
        return replace(found, transactions=[one for one in found.transactions if one.transactional_id in matching])

    async def add_partitions(self, request: AddPartitionsToTxn, *, may_be_internal: bool) -> AddPartitionsToTxnResult:
        """Add partitions to a transaction, or verify that they are in it; rule 2."""
        refused = {at: self._problem(at, may_be_internal=may_be_internal) for at in request.partitions}
        if any(error is not ErrorCode.NONE for error in refused.values()):
            untried = ErrorCode.OPERATION_NOT_ATTEMPTED
            return AddPartitionsToTxnResult(
                {at: untried if error is ErrorCode.NONE else error for at, error in refused.items()}
            )
        return await self.ask(request)

    def _problem(self, at: TopicPartition, *, may_be_internal: bool) -> ErrorCode:
        if at.topic in INTERNAL_TOPICS and not may_be_internal:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE if self._metadata.knows(at) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> AddOffsetsToTxnResult:
        """Add the offsets of a group to a transaction; rule 3."""
        known = len(self._metadata.partitions(OFFSETS_TOPIC))
        partition = partition_of(group_id, known or self._groups.partitions)
        return await self.ask(AddOffsetsToTxn(transactional_id, producer_id, producer_epoch, partition))

    # Markers

    async def write_markers(
        self, markers: Sequence[MarkersOfTransaction]
    ) -> Mapping[int, Mapping[TopicPartition, ErrorCode]]:
        """Write markers; rule 4. Return errors by producer id and partition.

        The offsets of a transaction count as soon as its marker is committed, even if its coordinator has disconnected.

        Raises:
            TidegaugeError: UNKNOWN_SERVER_ERROR, a marker for a partition that is here has no producer
                (MemoryRecordsBuilder.validateProducerState). As in Kafka, the markers before it are written.
        """
        outcomes: list[asyncio.Task[dict[TopicPartition, ErrorCode]]] = []
        for one in markers:
            if _lacks_producer(one.marker) and self._hosted(one):
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    "A marker ends the transaction of a producer: its producer id and epoch can't be -1. The markers "
                    "before it in the request were written.",
                )
            outcomes.append(self._begin_to_write(one))
        found: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for one, outcome in zip(markers, outcomes, strict=True):
            found.setdefault(one.marker.producer_id, {}).update(await asyncio.shield(outcome))
        return found

    @property
    def markers_in_progress(self) -> int:
        """Number of markers that are being written; their coordinator may have disconnected."""
        return len(self._writing)

    def _hosted(self, one: MarkersOfTransaction) -> list[TopicPartition]:
        return [at for at in one.partitions if self._replicas.core.partition(at) is not None]

    def _begin_to_write(self, one: MarkersOfTransaction) -> asyncio.Task[dict[TopicPartition, ErrorCode]]:
        """Append a marker now; the task ends when its partitions have their outcomes."""
        errors = dict.fromkeys(one.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        hosted = self._hosted(one)
        batch = make_marker(one.marker, self._now_ms())
        request = ProduceRequest(
            ACKS_ALL,
            self._settings.integer("request.timeout.ms"),
            [ProducePartition(at, batch) for at in hosted],
            from_coordinator=True,
            transaction_version=one.marker.transaction_version,
        )
        appended = self._replicas.produce(request)

        async def written() -> dict[TopicPartition, ErrorCode]:
            results = await appended
            errors.update({result.topic_partition: result.error for result in results})
            marker_offsets = {
                result.topic_partition.partition: result.base_offset
                for result in results
                if result.topic_partition.topic == OFFSETS_TOPIC and result.error is ErrorCode.NONE
            }
            if marker_offsets:
                await self._groups.transaction_completed(one.marker.producer_id, marker_offsets, one.marker.outcome)
            return errors

        task = asyncio.get_running_loop().create_task(written(), name="write-markers")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def close(self) -> None:
        """Give up the markers that are being written."""
        writing = list(self._writing)
        for task in writing:
            task.cancel()
        if writing:
            await asyncio.wait(writing)

    # Updates from the controller

    def metadata_updated(self) -> None:
        """Take up that the metadata cache has changed."""
        self.runner.topic_seen(len(self._metadata.partitions(TRANSACTION_TOPIC)))
