"""The methods of ``controller_service.proto``: what brokers send to the controller."""

from __future__ import annotations

from typing import Any

import grpc.aio

from tidegauge.v1 import control_pb2, controller_service_pb2_grpc
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_controller import wire

Context = grpc.aio.ServicerContext[Any, Any]


class ControllerServicer(controller_service_pb2_grpc.ControllerServiceServicer):
    """Serves the brokers' requests to the controller."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    async def AlterPartition(
        self, request: control_pb2.AlterPartitionRequest, context: Context
    ) -> control_pb2.AlterPartitionResponse:
        """Propose in-sync replicas."""
        del context
        return wire.to_alter_partition_response(await self._service.alter_partition(wire.from_alter_partition(request)))

    async def ControlledShutdown(
        self, request: control_pb2.ControlledShutdownRequest, context: Context
    ) -> control_pb2.ControlledShutdownResponse:
        """Move a broker's leaders away."""
        del context
        remaining = await self._service.controlled_shutdown(request.broker_id, request.broker_epoch)
        return await wire.to_remaining_partitions(*remaining)

    async def AllocateProducerIds(
        self, request: control_pb2.AllocateProducerIdsRequest, context: Context
    ) -> control_pb2.AllocateProducerIdsResponse:
        """Allocate a block of producer ids."""
        del context
        error, first, count = await self._service.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return control_pb2.AllocateProducerIdsResponse(error=wire.to_error(error), first_producer_id=first, count=count)
