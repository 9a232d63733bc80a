"""Requests to the controller over gRPC."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import grpc.aio

from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse, Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.v1 import control_pb2, topics_pb2
from tidegauge_broker.server.registration.to_controller import NoResponse
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_controller import wire
from tidegauge_controller.admin import NewTopic

Response = TypeVar("Response")


class GrpcController:
    """See ``ToController``.

    Args:
        peers: gRPC channels.
        settings: broker settings.
        logical_clock: goes with the requests, and is advanced by the responses.
    """

    def __init__(self, peers: Peers, settings: Values, logical_clock: LogicalClock) -> None:
        self._peers = peers
        self._timeout_ms = settings.integer("request.timeout.ms")
        self._timeout_seconds = self._timeout_ms / 1000
        self._clock = logical_clock

    async def alter_partition(self, to: Endpoint, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Propose in-sync replicas."""
        asked = wire.to_alter_partition(request)
        asked.logical_time = self._clock.value
        message = await _response(
            self._peers.controller(to.address).AlterPartition(asked, timeout=self._timeout_seconds)
        )
        self._clock.receive(message.logical_time)
        return wire.from_alter_partition_response(message)

    async def controlled_shutdown(
        self, to: Endpoint, broker_id: int, broker_epoch: int
    ) -> tuple[ErrorCode, list[TopicPartition]]:
        """Have a broker's leaders moved away."""
        asked = control_pb2.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        asked.logical_time = self._clock.value
        message = await _response(
            self._peers.controller(to.address).ControlledShutdown(asked, timeout=self._timeout_seconds)
        )
        self._clock.receive(message.logical_time)
        return wire.from_remaining_partitions(message)

    async def allocate_producer_ids(
        self, to: Endpoint, broker_id: int, broker_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        """Ask for a block of producer ids."""
        asked = control_pb2.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        message = await _response(
            self._peers.controller(to.address).AllocateProducerIds(asked, timeout=self._timeout_seconds)
        )
        return wire.from_error(message.error), message.first_producer_id, message.count

    async def create_topic(self, to: Endpoint, topic: NewTopic) -> tuple[ErrorCode, str]:
        """Have a topic created."""
        wanted = topics_pb2.NewTopic(
            name=topic.name,
            partition_count=topic.partition_count,
            replication_factor=topic.replication_factor,
            configs=topic.configs,
        )
        asked = topics_pb2.CreateTopicsRequest(timeout_ms=self._timeout_ms, topics=[wanted])
        message = await _response(self._peers.admin(to.address).CreateTopics(asked, timeout=self._timeout_seconds))
        status = message.topics[0].status
        return wire.from_error(status.error), status.message


async def _response(call: Awaitable[Response]) -> Response:
    try:
        return await call
    except grpc.aio.AioRpcError as problem:
        raise NoResponse(problem.details() or problem.code().name) from problem
