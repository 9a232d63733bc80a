"""The methods of ``transaction_service.proto``: what transactional producers, their administrators and brokers send.

Any broker may be asked, and forwards a request to the coordinator of the transactional id, or of the group whose
offsets are committed (``forwarding``). Markers and descriptions of producers concern the broker that is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grpc.aio

from tidegauge import groups, transactions
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge.v1 import groups_pb2, transaction_service_pb2_grpc, transactions_pb2
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.replica.producer_state import ProducerEntry
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_broker.server.service import BrokerService
from tidegauge_broker.server.service.group_service import KeyType
from tidegauge_broker.server.wire.grpc import merged_lists
from tidegauge_broker.server.wire.grpc.forwarding import Forwardable, Forwarding, to_status

Context = grpc.aio.ServicerContext[Any, Any]
_LEAST_EPOCH, _GREATEST_EPOCH = -(2**15), 2**15 - 1
_FENCED = "A newer producer with the same transactional id has taken over"


class _OfTransaction(Forwardable, Protocol):
    transactional_id: str


Response = TypeVar("Response")


class TransactionServicer(transaction_service_pb2_grpc.TransactionServiceServicer):
    """See the module.

    Args:
        service: the broker's.
        peers: channels to the other brokers.
        listener: name of the listener that serves.
    """

    def __init__(self, service: BrokerService, peers: Peers, listener: str) -> None:
        self._service = service
        self._transactions = service.transactions
        self._peers = peers
        self._forwarding = Forwarding(service, peers.transactions, listener)

    async def _forwarded(
        self, method: str, request: _OfTransaction, response: type[Response], context: Context
    ) -> Response | None:
        to = (KeyType.TRANSACTION, request.transactional_id)
        return await self._forwarding.response(to, method, request, response, context)

    async def InitTransactions(
        self, request: transactions_pb2.InitTransactionsRequest, context: Context
    ) -> transactions_pb2.InitTransactionsResponse:
        """Give a producer id and epoch; the response comes when they are committed."""
        await _check_epoch(request.producer_epoch, context)
        if request.HasField("producer_id") != request.HasField("producer_epoch"):
            words = "producer_id and producer_epoch are given together or not at all"
            return transactions_pb2.InitTransactionsResponse(status=to_status(ErrorCode.INVALID_REQUEST, words))
        forwarded = await self._forwarded(
            "InitTransactions", request, transactions_pb2.InitTransactionsResponse, context
        )
        if forwarded is not None:
            return forwarded
        result = await self._transactions.ask(
            transactions.InitProducerId(
                request.transactional_id,
                request.timeout_ms,
                request.producer_id if request.HasField("producer_id") else transactions.NO_PRODUCER_ID,
                request.producer_epoch if request.HasField("producer_epoch") else transactions.NO_PRODUCER_EPOCH,
            )
        )
        if result.error is not ErrorCode.NONE:
            return transactions_pb2.InitTransactionsResponse(status=_status(result.error, request.transactional_id))
        return transactions_pb2.InitTransactionsResponse(
            status=to_status(ErrorCode.NONE), producer_id=result.producer_id, producer_epoch=result.producer_epoch
        )

    async def AddPartitions(
        self, request: transactions_pb2.AddPartitionsRequest, context: Context
    ) -> transactions_pb2.AddPartitionsResponse:
        """Add partitions, or verify that they are in the transaction."""
        await _check_epoch(request.producer_epoch, context)
        forwarded = await self._forwarded("AddPartitions", request, transactions_pb2.AddPartitionsResponse, context)
        if forwarded is not None:
            return forwarded
        wanted = transactions.AddPartitionsToTxn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            tuple(TopicPartition(one.topic, one.partition) for one in request.partitions),
            request.verify_only,
        )
        result = await self._transactions.add_partitions(wanted, may_be_internal=request.verify_only)
        return transactions_pb2.AddPartitionsResponse(
            partitions=_with_errors(wanted.partitions, result.partitions, request.transactional_id)
        )

    async def AddOffsets(
        self, request: transactions_pb2.AddOffsetsRequest, context: Context
    ) -> transactions_pb2.AddOffsetsResponse:
        """Add the offsets of a group."""
        await _check_epoch(request.producer_epoch, context)
        forwarded = await self._forwarded("AddOffsets", request, transactions_pb2.AddOffsetsResponse, context)
        if forwarded is not None:
            return forwarded
        result = await self._transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
        )
        return transactions_pb2.AddOffsetsResponse(status=_status(result.error, request.transactional_id))

    async def CommitOffsetsInTransaction(
        self, request: transactions_pb2.CommitOffsetsInTransactionRequest, context: Context
    ) -> transactions_pb2.CommitOffsetsInTransactionResponse:
        """Store offsets that count when the transaction is committed."""
        await _check_epoch(request.producer_epoch, context)
        forwarded = await self._forwarding.response(
            (KeyType.GROUP, request.group_id),
            "CommitOffsetsInTransaction",
            request,
            transactions_pb2.CommitOffsetsInTransactionResponse,
            context,
        )
        if forwarded is not None:
            return forwarded
        offsets = tuple(
            groups.OffsetToCommit(
                TopicPartition(one.topic, one.partition), one.offset, one.leader_epoch, one.metadata or None
            )
            for one in request.offsets
        )
        result = await self._service.groups.commit_offsets_in_transaction(
            groups.TxnOffsetCommit(
                request.transactional_id,
                request.group_id,
                request.producer_id,
                request.producer_epoch,
                offsets,
                request.generation,
                request.member_id,
                request.group_instance_id or None,
            )
        )
        return transactions_pb2.CommitOffsetsInTransactionResponse(
            offsets=[
                groups_pb2.CommittedOffset(
                    topic=one.topic_partition.topic,
                    partition=one.topic_partition.partition,
                    offset=one.offset,
                    status=_status(result.partitions[one.topic_partition], request.transactional_id),
                )
                for one in offsets
            ]
        )

    async def EndTransaction(
        self, request: transactions_pb2.EndTransactionRequest, context: Context
    ) -> transactions_pb2.EndTransactionResponse:
        """Commit or abort; the response comes when the decision is committed."""
        await _check_epoch(request.producer_epoch, context)
        forwarded = await self._forwarded("EndTransaction", request, transactions_pb2.EndTransactionResponse, context)
        if forwarded is not None:
            return forwarded
        outcome = Outcome.COMMIT if request.committed else Outcome.ABORT
        result = await self._transactions.ask(
            transactions.EndTxn(request.transactional_id, request.producer_id, request.producer_epoch, outcome)
        )
        return transactions_pb2.EndTransactionResponse(status=_status(result.error, request.transactional_id))

    async def DescribeTransaction(
        self, request: transactions_pb2.DescribeTransactionRequest, context: Context
    ) -> transactions_pb2.DescribeTransactionResponse:
        """Describe a transactional id."""
        made = transactions_pb2.DescribeTransactionResponse
        forwarded = await self._forwarded("DescribeTransaction", request, made, context)
        if forwarded is not None:
            return forwarded
        found = await self._transactions.ask(transactions.DescribeTransaction(request.transactional_id))
        return made(
            status=_status(found.error, request.transactional_id),
            state=found.state,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.timeout_ms,
            start_time_ms=found.start_time_ms,
            partitions=[
                transactions_pb2.TransactionPartition(topic=at.topic, partition=at.partition)
                for at in sorted(found.partitions)
            ],
            coordinator=self._service.broker_id,
        )

    async def ListTransactions(
        self, request: transactions_pb2.ListTransactionsRequest, context: Context
    ) -> transactions_pb2.ListTransactionsResponse:
        """List the transactional ids of this broker, or of all live brokers."""
        wanted = transactions.ListTransactions(
            tuple(request.states),
            tuple(request.producer_ids),
            request.running_longer_than_ms
            if request.HasField("running_longer_than_ms")
            else transactions.NO_DURATION_MS,
        )
        result = await self._transactions.ask(wanted)
        own = transactions_pb2.ListTransactionsResponse(
            status=to_status(result.error),
            transactions=[
                transactions_pb2.ListedTransaction(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    state=one.state,
                    coordinator=self._service.broker_id,
                )
                for one in result.transactions
            ],
            unknown_states=result.unknown_state_filters,
        )
        if request.own_transactions_only:
            return own
        own_only = transactions_pb2.ListTransactionsRequest()
        own_only.CopyFrom(request)
        own_only.own_transactions_only = True
        parts, status = await merged_lists.gather(
            (self._service.broker_id, own),
            self._service.groups.other_brokers(self._service.broker_id),
            lambda address: self._peers.transactions(address).ListTransactions,
            own_only,
            context,
            "transactional ids",
            self._service.groups.leaderless(transactions.TRANSACTION_TOPIC),
        )
        listed = [one for part in parts for one in part.transactions]
        return transactions_pb2.ListTransactionsResponse(
            status=status,
            transactions=sorted(listed, key=lambda one: one.transactional_id),
            unknown_states=own.unknown_states,
        )

    async def DescribeProducers(
        self, request: transactions_pb2.DescribeProducersRequest, context: Context
    ) -> transactions_pb2.DescribeProducersResponse:
        """Describe the producers that this broker's replica of a partition knows."""
        del context
        at = TopicPartition(request.topic, request.partition)
        found = self._service.describe_producers(at)
        if isinstance(found, ErrorCode):
            words = f"This broker has no replica of {at}" if found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
            return transactions_pb2.DescribeProducersResponse(status=to_status(found, words))
        return transactions_pb2.DescribeProducersResponse(
            status=to_status(ErrorCode.NONE), producers=[_to_producer(one) for one in found]
        )

    async def WriteMarkers(
        self, request: transactions_pb2.WriteMarkersRequest, context: Context
    ) -> transactions_pb2.WriteMarkersResponse:
        """Write markers; the response comes when all are committed."""
        for one in request.markers:
            await _check_epoch(one.producer_epoch, context)
        wanted = [_from_marker(one) for one in request.markers]
        errors = await self._transactions.write_markers(wanted)
        return transactions_pb2.WriteMarkersResponse(
            markers=[
                transactions_pb2.Marker(
                    producer_id=one.marker.producer_id,
                    producer_epoch=one.marker.producer_epoch,
                    committed=one.marker.outcome is Outcome.COMMIT,
                    coordinator_epoch=one.marker.coordinator_epoch,
                    partitions=_with_errors(one.partitions, errors[one.marker.producer_id], ""),
                )
                for one in wanted
            ]
        )


async def _check_epoch(producer_epoch: int, context: Context) -> None:
    """Refuse an epoch that no batch header, marker or record of the transaction log can hold."""
    if not _LEAST_EPOCH <= producer_epoch <= _GREATEST_EPOCH:
        words = f"producer_epoch is a number of 16 bits, and not {producer_epoch}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, words)


def _with_errors(
    partitions: Sequence[TopicPartition], errors: Mapping[TopicPartition, ErrorCode], transactional_id: str
) -> list[transactions_pb2.TransactionPartition]:
    return [
        transactions_pb2.TransactionPartition(
            topic=at.topic, partition=at.partition, status=_status(errors[at], transactional_id)
        )
        for at in partitions
    ]


def _from_marker(one: transactions_pb2.Marker) -> MarkersOfTransaction:
    outcome = Outcome.COMMIT if one.committed else Outcome.ABORT
    marker = TransactionMarker(one.producer_id, one.producer_epoch, outcome, one.coordinator_epoch)
    return MarkersOfTransaction(marker, tuple(TopicPartition(at.topic, at.partition) for at in one.partitions))


def _to_producer(entry: ProducerEntry) -> transactions_pb2.PartitionProducer:
    return transactions_pb2.PartitionProducer(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp_ms=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_start_offset=entry.transaction_start,
    )


def _status(error: ErrorCode, transactional_id: str) -> Any:
    words = f"{_FENCED}: {transactional_id}" if error is ErrorCode.PRODUCER_FENCED and transactional_id else ""
    return to_status(error, words)
