"""The methods of ``replication_service.proto``: what followers send to a leader, and brokers about transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge.transactions import AddPartitionsToTxn
from tidegauge.v1 import (
    common_pb2,
    fetch_pb2,
    offsets_pb2,
    replication_service_pb2_grpc,
    transaction_markers_pb2,
)
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.server.replication.fetch_session import FetchSession
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.wire.grpc import convert
from tidegauge_broker.server.wire.grpc.callers import caller_of
from tidegauge_broker.server.wire.grpc.records_response import RecordsResponse
from tidegauge_controller import wire

Context = grpc.aio.ServicerContext[Any, Any]
_LEAST_EPOCH, _GREATEST_EPOCH = -(2**15), 2**15 - 1


class ReplicationServicer(replication_service_pb2_grpc.ReplicationServiceServicer):
    """Serves the requests of followers.

    Args:
        service: the broker's.
        listener: name of the listener that is served.
    """

    def __init__(self, service: BrokerService, listener: str) -> None:
        self._service = service
        self._listener = listener

    async def ReplicaFetch(  # type: ignore[override]  # what it yields serializes to the method's response
        self, request_iterator: AsyncIterator[fetch_pb2.ReplicaFetchRequest], context: Context
    ) -> AsyncIterator[fetch_pb2.ReplicaFetchResponse | RecordsResponse]:
        """Serve one follower, one request at a time; the stream remembers what it has sent (``FetchSession``)."""
        caller = caller_of(context, self._listener)
        session: FetchSession | None = None
        async for message in request_iterator:
            if session is None:
                error, problem = self._service.admit_follower(message.cluster_id, message.truncation_rule)
                if error is not ErrorCode.NONE:
                    yield fetch_pb2.ReplicaFetchResponse(
                        request_id=message.request_id, error=wire.to_error(error), error_message=problem
                    )
                    return
                session = FetchSession()
            request = session.request(
                message.replica_id,
                max_wait_ms=message.max_wait_ms,
                min_bytes=message.min_bytes,
                max_bytes=message.max_bytes,
                changed=[convert.from_fetch_partition(item) for item in message.partitions],
                forgotten=[TopicPartition(item.topic, item.partition) for item in message.forgotten],
                replica_epoch=message.broker_epoch or -1,
            )
            response = await self._service.fetch(caller, request)
            try:
                partitions = [
                    (convert.to_fetch_result(result), records)
                    for result, records in response.partitions
                    if session.has_news(result, records)
                ]
                yield RecordsResponse(fetch_pb2.ReplicaFetchResponse(request_id=message.request_id), partitions)
            finally:  # the response has been written, or the stream has ended
                response.pending.release()

    async def ReplicaOffsetsForLeaderEpoch(
        self, request: offsets_pb2.OffsetsForLeaderEpochRequest, context: Context
    ) -> offsets_pb2.OffsetsForLeaderEpochResponse:
        """Look up where epochs end in the leader's log."""
        del context
        questions = convert.from_epoch_questions(request)
        return convert.to_epoch_end_results(self._service.offset_for_leader_epoch(question) for question in questions)

    async def WriteMarkers(
        self, request: transaction_markers_pb2.WriteMarkersRequest, context: Context
    ) -> transaction_markers_pb2.WriteMarkersResponse:
        """Write markers; the response comes when all are committed."""
        for one in request.markers:
            await _check_epoch(one.producer_epoch, context)
        errors = await self._service.transactions.write_markers([from_marker(one) for one in request.markers])
        response = transaction_markers_pb2.WriteMarkersResponse(markers=request.markers)
        for one in response.markers:
            found = errors[one.producer_id]
            for at in one.partitions:
                at.status.CopyFrom(_to_status(found[TopicPartition(at.topic, at.partition)]))
        return response

    async def VerifyPartitions(
        self, request: transaction_markers_pb2.VerifyPartitionsRequest, context: Context
    ) -> transaction_markers_pb2.VerifyPartitionsResponse:
        """Say whether partitions are in a transaction, or add them."""
        await _check_epoch(request.producer_epoch, context)
        wanted = AddPartitionsToTxn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            tuple(TopicPartition(one.topic, one.partition) for one in request.partitions),
            verify_only=not request.adds,
            is_implicit=request.adds,
        )
        result = await self._service.transactions.add_partitions(wanted, may_be_internal=True)
        return transaction_markers_pb2.VerifyPartitionsResponse(
            partitions=_with_errors(wanted.partitions, result.partitions)
        )


async def _check_epoch(producer_epoch: int, context: Context) -> None:
    """Refuse an epoch that no batch header, marker or record of the transaction log can hold."""
    if not _LEAST_EPOCH <= producer_epoch <= _GREATEST_EPOCH:
        words = f"producer_epoch is a number of 16 bits, and not {producer_epoch}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, words)


def from_marker(one: transaction_markers_pb2.Marker) -> MarkersOfTransaction:
    """Convert a marker and its partitions."""
    outcome = Outcome.COMMIT if one.committed else Outcome.ABORT
    marker = TransactionMarker(
        one.producer_id, one.producer_epoch, outcome, one.coordinator_epoch, one.transaction_version
    )
    return MarkersOfTransaction(marker, tuple(TopicPartition(at.topic, at.partition) for at in one.partitions))


def _with_errors(
    partitions: Sequence[TopicPartition], errors: Mapping[TopicPartition, ErrorCode]
) -> list[transaction_markers_pb2.TransactionPartition]:
    return [
        transaction_markers_pb2.TransactionPartition(
            topic=at.topic, partition=at.partition, status=_to_status(errors[at])
        )
        for at in partitions
    ]


def _to_status(error: ErrorCode) -> common_pb2.Status:
    return common_pb2.Status(error=wire.to_error(error))
