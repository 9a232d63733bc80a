"""The gRPC services: each method turns a message into plain values, asks ``BrokerService``, and turns the answer back.

Nothing is decided here, with two exceptions that belong to streams: a produce stream keeps the order of its requests
while answers may overtake one another, and a follower's stream remembers what it has been told (``FetchSession``).
What the .proto files offer and this version does not do yet answers UNIMPLEMENTED with a sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.settings import SettingView
from tidegauge.v1 import (
    admin_service_pb2_grpc,
    broker_service_pb2_grpc,
    common_pb2,
    control_pb2,
    control_service_pb2_grpc,
    controller_service_pb2_grpc,
    fetch_pb2,
    metadata_pb2,
    offsets_pb2,
    produce_pb2,
    reassignments_pb2,
    replication_service_pb2_grpc,
    topics_pb2,
)
from tidegauge_broker.replica.messages import CONSUMER, EpochQuestion, FetchRequest, RecordsToDelete
from tidegauge_broker.server.replication.fetch_session import FetchSession
from tidegauge_broker.server.service import BrokerService, ClusterView, TopicView
from tidegauge_broker.server.wire.grpc import convert
from tidegauge_broker.server.wire.grpc.outgoing import Outgoing
from tidegauge_controller import wire
from tidegauge_controller.admin import NewPartitions, NewTopic, TopicOutcome

Context = grpc.aio.ServicerContext[Any, Any]
MOST_OPEN_PRODUCES = 1_000
"""So many requests of one stream may wait for their acks, or for the client to take the answer."""


class BrokerServicer(broker_service_pb2_grpc.BrokerServiceServicer):
    """The client plane, as it is served through one listener."""

    def __init__(self, service: BrokerService, now_ms: Callable[[], int], listener: str) -> None:
        self._service = service
        self._outgoing = Outgoing()
        self._listener = listener
        self._now_ms = now_ms

    async def Produce(self, request: produce_pb2.ProduceRequest, context: Context) -> produce_pb2.ProduceResponse:
        """Append; see ``broker_service.proto``."""
        del context
        results = await self._service.produce(convert.from_produce(request))
        return convert.to_produce_response(request.correlation_id, [] if request.acks == 0 else results)

    async def ProduceStream(
        self, request_iterator: AsyncIterator[produce_pb2.ProduceRequest], context: Context
    ) -> AsyncIterator[produce_pb2.ProduceResponse]:
        """Append in the order of the requests; answer each when its acks is fulfilled."""
        answers: asyncio.Queue[produce_pb2.ProduceResponse | None] = asyncio.Queue()
        room = asyncio.Semaphore(MOST_OPEN_PRODUCES)
        reader = asyncio.get_running_loop().create_task(self._read_produces(request_iterator, answers, room))
        try:
            while (answer := await answers.get()) is not None:
                yield answer
                room.release()
        finally:
            reader.cancel()
        problem = await reader
        if problem:
            await context.abort(grpc.StatusCode.UNAVAILABLE, problem)

    async def _read_produces(
        self,
        requests: AsyncIterator[produce_pb2.ProduceRequest],
        answers: asyncio.Queue[produce_pb2.ProduceResponse | None],
        room: asyncio.Semaphore,
    ) -> str:
        """Append each request; says why the stream must end, or nothing when the client has ended it.

        A client that has gone leaves nothing waiting; one that takes no answers is not read from any more.
        """
        waiting: set[asyncio.Future[Any]] = set()
        all_answered = asyncio.Event()

        def answered(correlation_id: int, future: asyncio.Future[Any]) -> None:
            waiting.discard(future)
            if not future.cancelled():
                answers.put_nowait(convert.to_produce_response(correlation_id, future.result()))
            if not waiting:
                all_answered.set()

        try:
            async for message in requests:
                await room.acquire()
                future = self._service.produce(convert.from_produce(message))
                if message.acks == 0:
                    failed = next((r for r in future.result() if r.error is not ErrorCode.NONE), None)
                    if failed is not None:
                        # With acks=0 there is no answer that could carry the error: as Kafka, end the connection.
                        return f"{failed.error.name}: {failed.message}"
                    answers.put_nowait(produce_pb2.ProduceResponse(correlation_id=message.correlation_id))
                    continue
                waiting.add(future)
                all_answered.clear()
                future.add_done_callback(partial(answered, message.correlation_id))
            if waiting:
                await all_answered.wait()
            return ""
        finally:
            for future in list(waiting):
                future.cancel()
            answers.put_nowait(None)

    async def Fetch(self, request: fetch_pb2.FetchRequest, context: Context) -> fetch_pb2.FetchResponse:
        """Read committed batches."""
        connection = context.peer()
        most_bytes = self._service.settings.integer("fetch.max.bytes")
        await self._outgoing.room(connection, most_bytes)
        wanted = FetchRequest(
            CONSUMER,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            [convert.from_fetch_partition(item) for item in request.partitions],
        )
        with self._outgoing.gathering(connection, min(request.min_bytes, request.max_bytes, most_bytes)):
            answer = await self._service.fetch(wanted)
        self._outgoing.hold(connection, sum(len(records) for _, records in answer), context)
        return fetch_pb2.FetchResponse(partitions=[convert.to_fetch_result(*item) for item in answer])

    async def ListOffsets(
        self, request: offsets_pb2.ListOffsetsRequest, context: Context
    ) -> offsets_pb2.ListOffsetsResponse:
        """Offsets by time."""
        del context
        response = offsets_pb2.ListOffsetsResponse()
        for item in request.partitions:
            at = TopicPartition(item.topic, item.partition)
            epoch = item.current_leader_epoch if item.HasField("current_leader_epoch") else None
            response.partitions.append(
                convert.to_offset_result(at, *self._service.list_offset(at, epoch, item.timestamp_ms))
            )
        return response

    async def OffsetsForLeaderEpoch(
        self, request: offsets_pb2.OffsetsForLeaderEpochRequest, context: Context
    ) -> offsets_pb2.OffsetsForLeaderEpochResponse:
        """Where epochs end."""
        del context
        return _epoch_ends(self._service, request)

    async def Metadata(self, request: metadata_pb2.MetadataRequest, context: Context) -> metadata_pb2.MetadataResponse:
        """This broker's metadata cache."""
        del context
        topics = None if request.all_topics else list(request.topics)
        view = self._service.metadata(topics, may_create=request.allow_auto_topic_creation)
        return _to_metadata(view, self._listener)

    async def DescribeReplicas(
        self, request: metadata_pb2.DescribeReplicasRequest, context: Context
    ) -> metadata_pb2.DescribeReplicasResponse:
        """This broker's replicas."""
        del context
        replicas = self._service.describe_replicas(self._now_ms(), set(request.topics))
        return metadata_pb2.DescribeReplicasResponse(
            broker_id=self._service.broker_id, replicas=[convert.to_replica(view, size) for view, size in replicas]
        )

    async def InitProducerId(
        self, request: produce_pb2.InitProducerIdRequest, context: Context
    ) -> produce_pb2.InitProducerIdResponse:
        """An id for an idempotent producer."""
        del request, context
        error, producer_id = self._service.init_producer_id()
        if error is not ErrorCode.NONE:
            return produce_pb2.InitProducerIdResponse(
                error=wire.to_error(error), error_message="No block of producer ids is at hand yet; try again"
            )
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


def _epoch_ends(
    service: BrokerService, request: offsets_pb2.OffsetsForLeaderEpochRequest
) -> offsets_pb2.OffsetsForLeaderEpochResponse:
    questions = [
        EpochQuestion(
            TopicPartition(item.topic, item.partition),
            item.leader_epoch,
            item.current_leader_epoch if item.HasField("current_leader_epoch") else None,
        )
        for item in request.partitions
    ]
    return offsets_pb2.OffsetsForLeaderEpochResponse(
        partitions=[convert.to_epoch_answer(service.offset_for_leader_epoch(question)) for question in questions]
    )


def _to_metadata(view: ClusterView, listener: str) -> metadata_pb2.MetadataResponse:
    """What clients of this listener are told: brokers that can't be reached through it are none to them."""
    seen = [endpoint for endpoint in (one.through(listener) for one in view.brokers) if endpoint is not None]
    live = {endpoint.broker_id for endpoint in seen}
    return metadata_pb2.MetadataResponse(
        cluster_id=view.cluster_id,
        controller_id=view.controller_id,
        controller_epoch=view.controller_epoch,
        brokers=[wire.to_endpoint(endpoint) for endpoint in seen],
        topics=[_to_topic(topic, live) for topic in view.topics],
    )


def _to_topic(topic: TopicView, live: set[int]) -> metadata_pb2.TopicMetadata:
    message = metadata_pb2.TopicMetadata(
        error=wire.to_error(topic.error), error_message=topic.message, name=topic.name, topic_id=topic.topic_id
    )
    for entry in topic.partitions:
        state = entry.state
        led = state.leader in live
        message.partitions.add(
            error=wire.to_error(ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE),
            partition=state.topic_partition.partition,
            leader_id=state.leader if led else None,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            isr=state.isr,
            offline_replicas=sorted(set(entry.offline_replicas) | (set(state.replicas) - live)),
            partition_epoch=state.partition_epoch,
            adding_replicas=state.adding_replicas,
            removing_replicas=state.removing_replicas,
        )
    return message


class ReplicationServicer(replication_service_pb2_grpc.ReplicationServiceServicer):
    """What followers ask."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    async def ReplicaFetch(
        self, request_iterator: AsyncIterator[fetch_pb2.ReplicaFetchRequest], context: Context
    ) -> AsyncIterator[fetch_pb2.ReplicaFetchResponse]:
        """Serve one follower; one request at a time."""
        del context
        session: FetchSession | None = None
        async for message in request_iterator:
            if session is None:
                refusal = self._refuse(message)
                if refusal is not None:
                    yield refusal
                    return
                session = FetchSession()
            self._service.logical_clock.receive(message.logical_time)
            request = session.request(
                message.replica_id,
                max_wait_ms=message.max_wait_ms,
                min_bytes=message.min_bytes,
                max_bytes=message.max_bytes,
                changed=[convert.from_fetch_partition(item) for item in message.partitions],
                forgotten=[TopicPartition(item.topic, item.partition) for item in message.forgotten],
                replica_epoch=message.broker_epoch or -1,
            )
            answer = await self._service.fetch(request)
            yield fetch_pb2.ReplicaFetchResponse(
                request_id=message.request_id,
                partitions=[
                    convert.to_fetch_result(result, records)
                    for result, records in answer
                    if session.is_worth_telling(result, records)
                ],
                logical_time=self._service.logical_clock.value,
            )

    def _refuse(self, first: fetch_pb2.ReplicaFetchRequest) -> fetch_pb2.ReplicaFetchResponse | None:
        """A follower of another cluster, or one that truncates by another rule, must not replicate from here."""
        own_rule = self._service.settings.text("replica.truncation.rule")
        if first.cluster_id != self._service.cluster_id:
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
            text = f"This broker belongs to cluster {self._service.cluster_id}, the follower to {first.cluster_id}"
        elif first.truncation_rule != own_rule:
            error = ErrorCode.INVALID_REQUEST
            text = f"This broker's replica.truncation.rule is {own_rule}, the follower's is {first.truncation_rule}"
        else:
            return None
        return fetch_pb2.ReplicaFetchResponse(
            request_id=first.request_id, error=wire.to_error(error), error_message=text
        )

    async def ReplicaOffsetsForLeaderEpoch(
        self, request: offsets_pb2.OffsetsForLeaderEpochRequest, context: Context
    ) -> offsets_pb2.OffsetsForLeaderEpochResponse:
        """Where epochs end in the leader's log."""
        del context
        self._service.logical_clock.receive(request.logical_time)
        answer = _epoch_ends(self._service, request)
        answer.logical_time = self._service.logical_clock.value
        return answer


class ControlServicer(control_service_pb2_grpc.ControlServiceServicer):
    """What the controller tells."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    async def LeaderAndIsr(
        self, request: control_pb2.LeaderAndIsrRequest, context: Context
    ) -> control_pb2.LeaderAndIsrResponse:
        """Become leader or follower."""
        del context
        self._service.logical_clock.receive(request.header.logical_time)
        response = await self._service.leader_and_isr(wire.from_leader_and_isr(request))
        message = wire.to_leader_and_isr_response(response)
        message.logical_time = self._service.logical_clock.value
        return message

    async def UpdateMetadata(
        self, request: control_pb2.UpdateMetadataRequest, context: Context
    ) -> control_pb2.UpdateMetadataResponse:
        """Fill the metadata cache."""
        del context
        clock = self._service.logical_clock
        clock.receive(request.header.logical_time)
        error = self._service.update_metadata(wire.from_update_metadata(request))
        return control_pb2.UpdateMetadataResponse(error=wire.to_error(error), logical_time=clock.value)

    async def StopReplica(
        self, request: control_pb2.StopReplicaRequest, context: Context
    ) -> control_pb2.StopReplicaResponse:
        """Stop replicas."""
        del context
        self._service.logical_clock.receive(request.header.logical_time)
        message = wire.to_stop_replica_response(await self._service.stop_replica(wire.from_stop_replica(request)))
        message.logical_time = self._service.logical_clock.value
        return message


class ControllerServicer(controller_service_pb2_grpc.ControllerServiceServicer):
    """What brokers ask of the controller."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    async def AlterPartition(
        self, request: control_pb2.AlterPartitionRequest, context: Context
    ) -> control_pb2.AlterPartitionResponse:
        """Propose in-sync replicas."""
        del context
        self._service.logical_clock.receive(request.logical_time)
        response = await self._service.alter_partition(wire.from_alter_partition(request))
        message = wire.to_alter_partition_response(response)
        message.logical_time = self._service.logical_clock.value
        return message

    async def ControlledShutdown(
        self, request: control_pb2.ControlledShutdownRequest, context: Context
    ) -> control_pb2.ControlledShutdownResponse:
        """Move a broker's leaders away."""
        del context
        self._service.logical_clock.receive(request.logical_time)
        message = wire.to_remaining_partitions(
            *await self._service.controlled_shutdown(request.broker_id, request.broker_epoch)
        )
        message.logical_time = self._service.logical_clock.value
        return message

    async def AllocateProducerIds(
        self, request: control_pb2.AllocateProducerIdsRequest, context: Context
    ) -> control_pb2.AllocateProducerIdsResponse:
        """A block of producer ids."""
        del context
        error, first, count = await self._service.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return control_pb2.AllocateProducerIdsResponse(error=wire.to_error(error), first_producer_id=first, count=count)


class AdminServicer(admin_service_pb2_grpc.AdminServiceServicer):
    """What administrators ask."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    async def CreateTopics(
        self, request: topics_pb2.CreateTopicsRequest, context: Context
    ) -> topics_pb2.CreateTopicsResponse:
        """Create topics."""
        del context
        topics = [
            NewTopic(
                topic.name,
                topic.partition_count if topic.HasField("partition_count") else None,
                topic.replication_factor if topic.HasField("replication_factor") else None,
                [tuple(replicas.broker_ids) for replicas in topic.assignment],
                dict(topic.configs),
            )
            for topic in request.topics
        ]
        outcomes = await self._service.create_topics(topics, request.timeout_ms)
        return topics_pb2.CreateTopicsResponse(topics=[_to_topic_result(outcome) for outcome in outcomes])

    async def DeleteTopics(
        self, request: topics_pb2.DeleteTopicsRequest, context: Context
    ) -> topics_pb2.DeleteTopicsResponse:
        """Delete topics."""
        del context
        outcomes = await self._service.delete_topics(list(request.names), request.timeout_ms)
        return topics_pb2.DeleteTopicsResponse(topics=[_to_topic_result(outcome) for outcome in outcomes])

    async def ElectLeaders(
        self, request: topics_pb2.ElectLeadersRequest, context: Context
    ) -> topics_pb2.ElectLeadersResponse:
        """Elect leaders on demand."""
        del context
        if request.election_type not in topics_pb2.ElectionType.values():
            problem = f"Unknown election type {request.election_type}"
            return topics_pb2.ElectLeadersResponse(status=_to_status(ErrorCode.INVALID_REQUEST, problem))
        wanted = [TopicPartition(item.topic, item.partition) for item in request.partitions]
        answers = await self._service.elect_leaders(
            None if request.all_partitions else wanted,
            unclean=request.election_type == topics_pb2.ELECTION_TYPE_UNCLEAN,
            timeout_ms=request.timeout_ms,
        )
        if answers is None:
            return topics_pb2.ElectLeadersResponse(status=_to_status(ErrorCode.NOT_CONTROLLER))
        return topics_pb2.ElectLeadersResponse(
            partitions=[
                topics_pb2.ElectPartitionResult(
                    topic=at.topic, partition=at.partition, status=_to_status(error, message)
                )
                for at, (error, message) in sorted(answers.items())
            ]
        )

    async def AlterPartitionReassignments(
        self, request: reassignments_pb2.AlterPartitionReassignmentsRequest, context: Context
    ) -> reassignments_pb2.AlterPartitionReassignmentsResponse:
        """Give partitions other replicas."""
        del context
        wanted = {
            TopicPartition(item.topic, item.partition): None if item.cancel else tuple(item.replicas)
            for item in request.partitions
        }
        answers = await self._service.alter_reassignments(wanted)
        if answers is None:
            status = _to_status(ErrorCode.NOT_CONTROLLER)
            return reassignments_pb2.AlterPartitionReassignmentsResponse(status=status)
        return reassignments_pb2.AlterPartitionReassignmentsResponse(
            partitions=[
                reassignments_pb2.ReassignPartitionResult(
                    topic=at.topic, partition=at.partition, status=_to_status(error, message)
                )
                for at, (error, message) in sorted(answers.items())
            ]
        )

    async def ListPartitionReassignments(
        self, request: reassignments_pb2.ListPartitionReassignmentsRequest, context: Context
    ) -> reassignments_pb2.ListPartitionReassignmentsResponse:
        """The reassignments that run."""
        del context
        asked = [TopicPartition(item.topic, item.partition) for item in request.partitions]
        found = await self._service.list_reassignments(None if request.all_partitions else asked)
        if found is None:
            status = _to_status(ErrorCode.NOT_CONTROLLER)
            return reassignments_pb2.ListPartitionReassignmentsResponse(status=status)
        return reassignments_pb2.ListPartitionReassignmentsResponse(
            partitions=[
                reassignments_pb2.OngoingReassignment(
                    topic=at.topic,
                    partition=at.partition,
                    replicas=assignment.replicas,
                    adding_replicas=assignment.adding,
                    removing_replicas=assignment.removing,
                )
                for at, assignment in found.items()
            ]
        )

    async def CreatePartitions(
        self, request: topics_pb2.CreatePartitionsRequest, context: Context
    ) -> topics_pb2.CreatePartitionsResponse:
        """Add partitions."""
        del context
        topics = [
            NewPartitions(topic.name, topic.total_count, [tuple(replicas.broker_ids) for replicas in topic.assignment])
            for topic in request.topics
        ]
        outcomes = await self._service.create_partitions(topics, request.timeout_ms)
        return topics_pb2.CreatePartitionsResponse(topics=[_to_topic_result(outcome) for outcome in outcomes])

    async def AlterConfigs(
        self, request: topics_pb2.AlterConfigsRequest, context: Context
    ) -> topics_pb2.AlterConfigsResponse:
        """Change dynamic settings, all of the request or nothing."""
        del context
        configs = self._service.configs
        if request.resource_type not in topics_pb2.ConfigResourceType.values():
            return topics_pb2.AlterConfigsResponse(status=_unknown_resource(request.resource_type))
        is_topic = request.resource_type == topics_pb2.CONFIG_RESOURCE_TYPE_TOPIC
        alter = configs.alter_topic if is_topic else configs.alter_broker
        try:
            number = await alter(request.resource_name, dict(request.set), list(request.delete))
        except TidegaugeError as problem:
            return topics_pb2.AlterConfigsResponse(status=_to_status(problem.code, problem.message))
        return topics_pb2.AlterConfigsResponse(change_number=number)

    async def DescribeConfigs(
        self, request: topics_pb2.DescribeConfigsRequest, context: Context
    ) -> topics_pb2.DescribeConfigsResponse:
        """Show a topic's settings, this broker's, or what is set for all brokers."""
        del context
        configs = self._service.configs
        if request.resource_type not in topics_pb2.ConfigResourceType.values():
            return topics_pb2.DescribeConfigsResponse(status=_unknown_resource(request.resource_type))
        try:
            if request.resource_type == topics_pb2.CONFIG_RESOURCE_TYPE_TOPIC:
                views = await configs.describe_topic(request.resource_name)
            else:
                views = configs.describe_broker(request.resource_name)
        except TidegaugeError as problem:
            return topics_pb2.DescribeConfigsResponse(status=_to_status(problem.code, problem.message))
        return topics_pb2.DescribeConfigsResponse(
            entries=[_to_config_entry(view) for view in views], applied_change=configs.applied_change
        )


def _to_config_entry(view: SettingView) -> topics_pb2.ConfigEntry:
    return topics_pb2.ConfigEntry(
        name=view.name,
        value=view.value,
        is_default=view.is_default,
        is_read_only=view.is_read_only,
        source=view.source,
        synonyms=[
            topics_pb2.ConfigSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in view.synonyms
        ],
    )


def _to_status(error: ErrorCode, message: str = "") -> common_pb2.Status:
    return common_pb2.Status(error=wire.to_error(error), message=message)


def _unknown_resource(resource_type: int) -> common_pb2.Status:
    return _to_status(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}")


def _to_topic_result(outcome: TopicOutcome) -> topics_pb2.TopicResult:
    return topics_pb2.TopicResult(
        name=outcome.name, status=_to_status(outcome.error, outcome.message), topic_id=outcome.topic_id
    )
