"""The methods of ``broker_service.proto``: what clients send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transactions import SupportedOperation
from tidegauge.v1 import broker_service_pb2_grpc, fetch_pb2, metadata_pb2, offsets_pb2, produce_pb2
from tidegauge.with_turns import with_turns
from tidegauge_broker.replica.messages import CONSUMER, FetchRequest, OffsetLookup, ProduceResult, RecordsToDelete
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.cluster_view import ClusterView, TopicView, Unreachable
from tidegauge_broker.server.service.open_produces import UnacknowledgedAppendFailed
from tidegauge_broker.server.service.produce_portions import append
from tidegauge_broker.server.service.produce_verification import Verified
from tidegauge_broker.server.wire.grpc import convert
from tidegauge_broker.server.wire.grpc.callers import caller_of
from tidegauge_broker.server.wire.grpc.counted_responses import release_when_done
from tidegauge_broker.server.wire.grpc.records_response import RecordsResponse
from tidegauge_controller import wire

Context = grpc.aio.ServicerContext[Any, Any]
_PARTITIONS_PER_TURN = 250


def _take_exception(task: asyncio.Task[None]) -> None:
    """Keep asyncio from logging an exception that the stream's own end has made meaningless."""
    if not task.cancelled():
        task.exception()


class BrokerServicer(broker_service_pb2_grpc.BrokerServiceServicer):
    """Serves the requests of clients, through one listener.

    Args:
        service: the broker's.
        now_ms: its clock.
        listener: name of the listener.
        kafka_listeners: names of the listeners for Kafka clients by security protocol, by preference.
    """

    def __init__(
        self,
        service: BrokerService,
        now_ms: Callable[[], int],
        listener: str,
        kafka_listeners: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._service = service
        self._listener = listener
        self._kafka_listeners = kafka_listeners or {}
        self._now_ms = now_ms

    async def Produce(self, request: produce_pb2.ProduceRequest, context: Context) -> produce_pb2.ProduceResponse:
        """Append; see ``broker_service.proto``."""
        del context
        verified = await self._verified(request)
        appended = await append(self._service.produce, verified.request)
        results = verified.in_order(_order_of(request), await appended)
        return convert.to_produce_response(request.correlation_id, [] if request.acks == 0 else results)

    async def _verified(self, message: produce_pb2.ProduceRequest) -> Verified:
        """Return the part to append; transactions may wait for coordinators (KIP-890)."""
        request = convert.from_produce(message)
        found = self._service.verification.of(
            request, message.transactional_id or None, SupportedOperation.GENERIC_ERROR_SUPPORTED
        )
        return found if isinstance(found, Verified) else await found

    async def ProduceStream(
        self, request_iterator: AsyncIterator[produce_pb2.ProduceRequest], context: Context
    ) -> AsyncIterator[produce_pb2.ProduceResponse]:
        """Append in the order of the requests; respond to each when its acks is satisfied."""
        responses: asyncio.Queue[produce_pb2.ProduceResponse | None] = asyncio.Queue()
        produces = self._service.open_produces()

        def respond(
            correlation_id: int, order: Sequence[TopicPartition], verified: Verified, results: Sequence[ProduceResult]
        ) -> None:
            found = verified.in_order(order, results) if results or verified.refused else ()
            responses.put_nowait(convert.to_produce_response(correlation_id, found))

        async def read() -> None:
            try:
                async for message in request_iterator:
                    verified = await self._verified(message)
                    order = _order_of(message)
                    await produces.submit(
                        verified.request, partial(respond, message.correlation_id, order, verified), verified.refused
                    )
                await produces.until_acknowledged()
            finally:
                produces.close()
                responses.put_nowait(None)

        reader = asyncio.get_running_loop().create_task(read())
        reader.add_done_callback(_take_exception)  # where the stream is aborted below, nothing awaits the reader
        try:
            while (response := await responses.get()) is not None:
                yield response
                produces.taken()
        finally:
            reader.cancel()
        try:
            await reader
        except UnacknowledgedAppendFailed as problem:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(problem))

    async def Fetch(  # type: ignore[override]  # the returned object serializes to the method's response
        self, request: fetch_pb2.FetchRequest, context: Context
    ) -> RecordsResponse:
        """Read committed batches."""
        caller = caller_of(context, self._listener)
        wanted = FetchRequest(
            CONSUMER,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            [convert.from_fetch_partition(item) for item in request.partitions],
            reads_committed=request.reads_committed,
        )
        response = await self._service.fetch(caller, wanted)
        release_when_done(response.pending, context)
        partitions = [(convert.to_fetch_result(result), records) for result, records in response.partitions]
        return RecordsResponse(fetch_pb2.FetchResponse(), partitions)

    async def ListOffsets(
        self, request: offsets_pb2.ListOffsetsRequest, context: Context
    ) -> offsets_pb2.ListOffsetsResponse:
        """Look up offsets by time."""
        del context
        response = offsets_pb2.ListOffsetsResponse()
        async for item in with_turns(request.partitions):
            at = TopicPartition(item.topic, item.partition)
            epoch = item.current_leader_epoch if item.HasField("current_leader_epoch") else None
            lookup = OffsetLookup(at, item.timestamp_ms, epoch, reads_committed=request.reads_committed)
            response.partitions.append(convert.to_offset_result(at, *await self._service.list_offset(lookup)))
        return response

    async def OffsetsForLeaderEpoch(
        self, request: offsets_pb2.OffsetsForLeaderEpochRequest, context: Context
    ) -> offsets_pb2.OffsetsForLeaderEpochResponse:
        """Look up where epochs end."""
        del context
        questions = with_turns(convert.from_epoch_questions(request))
        return convert.to_epoch_end_results(
            [self._service.offset_for_leader_epoch(question) async for question in questions]
        )

    async def Metadata(self, request: metadata_pb2.MetadataRequest, context: Context) -> metadata_pb2.MetadataResponse:
        """Return this broker's metadata cache."""
        topics = None if request.all_topics else list(request.topics)
        caller = caller_of(context, self._listener)
        may_create = request.allow_auto_topic_creation
        response = await _to_metadata(
            self._service.metadata(caller, topics, may_create=may_create, unreachable=Unreachable.ALIVE)
        )
        if self._kafka_listeners:
            for broker in (*response.brokers, *response.brokers_without_listener):
                broker.kafka_addresses.update(self._service.addresses_on(broker.broker_id, self._kafka_listeners))
        return response

    async def DescribeReplicas(
        self, request: metadata_pb2.DescribeReplicasRequest, context: Context
    ) -> metadata_pb2.DescribeReplicasResponse:
        """Describe this broker's replicas."""
        del context
        now_ms, topics = self._now_ms(), set(request.topics)
        replicas = self._service.describe_replicas(now_ms, topics)
        response = metadata_pb2.DescribeReplicasResponse(
            broker_id=self._service.broker_id,
            replicas=[convert.to_replica(view, on_disk) async for view, on_disk in with_turns(replicas)],
            refusals=[convert.to_refused(one, ago_ms) for one, ago_ms in self._service.refusals(now_ms, topics)],
        )
        if request.with_znodes and self._service.stored_topic_ids is not None:
            response.znode_topic_ids.update(await self._service.stored_topic_ids(topics))
        return response

    async def InitProducerId(
        self, request: produce_pb2.InitProducerIdRequest, context: Context
    ) -> produce_pb2.InitProducerIdResponse:
        """Return an id for an idempotent producer."""
        del request, context
        error, message, producer_id = self._service.init_producer_id()
        if error is not ErrorCode.NONE:
            return produce_pb2.InitProducerIdResponse(error=wire.to_error(error), error_message=message)
        return produce_pb2.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    async def DeleteRecords(
        self, request: offsets_pb2.DeleteRecordsRequest, context: Context
    ) -> offsets_pb2.DeleteRecordsResponse:
        """Raise log start offsets."""
        del context
        wanted = [
            RecordsToDelete(
                TopicPartition(item.topic, item.partition),
                item.before_offset if item.HasField("before_offset") else None,
            )
            for item in request.partitions
        ]
        results = await self._service.delete_records(wanted, request.timeout_ms)
        return offsets_pb2.DeleteRecordsResponse(partitions=[convert.to_delete_records_result(one) for one in results])


def _order_of(message: produce_pb2.ProduceRequest) -> list[TopicPartition]:
    """Return a request's partitions in order, the order of its results."""
    return [TopicPartition(item.topic, item.partition) for item in message.partitions]


async def _to_metadata(view: ClusterView) -> metadata_pb2.MetadataResponse:
    message = metadata_pb2.MetadataResponse(
        cluster_id=view.cluster_id,
        controller_id=view.controller_id,
        controller_epoch=view.controller_epoch,
        brokers=[wire.to_endpoint(endpoint) for endpoint in view.brokers],
        brokers_without_listener=[wire.to_endpoint(endpoint) for endpoint in view.without_listener],
    )
    async for topic in with_turns(view.topics, _PARTITIONS_PER_TURN):
        await _to_topic(topic, message.topics.add())
    return message


async def _to_topic(topic: TopicView, message: metadata_pb2.TopicMetadata) -> None:
    message.error = wire.to_error(topic.error)
    message.error_message = topic.message
    message.name = topic.name
    message.topic_id = topic.topic_id
    async for one in with_turns(topic.partitions, _PARTITIONS_PER_TURN):
        message.partitions.add(
            error=wire.to_error(one.error),
            partition=one.partition,
            leader_id=one.leader,
            leader_epoch=one.leader_epoch,
            replicas=one.replicas,
            isr=one.isr,
            offline_replicas=one.offline_replicas,
            partition_epoch=one.partition_epoch,
            adding_replicas=one.adding_replicas,
            removing_replicas=one.removing_replicas,
            eligible_leaders=None
            if one.elr is None
            else metadata_pb2.EligibleLeaders(elr=one.elr, last_known_elr=one.last_known_elr),
        )
