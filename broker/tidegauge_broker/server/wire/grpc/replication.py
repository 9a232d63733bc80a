"""The methods of ``replication_service.proto``: what followers send to a leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2, offsets_pb2, replication_service_pb2_grpc
from tidegauge_broker.server.replication.fetch_session import FetchSession
from tidegauge_broker.server.service import BrokerService
from tidegauge_broker.server.wire.grpc import convert
from tidegauge_broker.server.wire.grpc.callers import caller_of
from tidegauge_broker.server.wire.grpc.records_response import RecordsResponse
from tidegauge_controller import wire

Context = grpc.aio.ServicerContext[Any, Any]


class ReplicationServicer(replication_service_pb2_grpc.ReplicationServiceServicer):
    """What followers send.

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
