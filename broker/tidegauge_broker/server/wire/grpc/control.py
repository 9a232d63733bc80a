"""The methods of ``control_service.proto``: what the controller sends to a broker."""

from __future__ import annotations

from typing import Any

import grpc.aio

from tidegauge.v1 import control_pb2, control_service_pb2_grpc
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_controller import wire

Context = grpc.aio.ServicerContext[Any, Any]


class ControlServicer(control_service_pb2_grpc.ControlServiceServicer):
    """Serves the controller's requests to a broker."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    async def LeaderAndIsr(
        self, request: control_pb2.LeaderAndIsrRequest, context: Context
    ) -> control_pb2.LeaderAndIsrResponse:
        """Become leader or follower."""
        del context
        response = await self._service.leader_and_isr(await wire.from_leader_and_isr(request))
        return await wire.to_leader_and_isr_response(response)

    async def UpdateMetadata(
        self, request: control_pb2.UpdateMetadataRequest, context: Context
    ) -> control_pb2.UpdateMetadataResponse:
        """Fill the metadata cache."""
        del context
        error = self._service.update_metadata(await wire.from_update_metadata(request))
        return control_pb2.UpdateMetadataResponse(error=wire.to_error(error))

    async def StopReplica(
        self, request: control_pb2.StopReplicaRequest, context: Context
    ) -> control_pb2.StopReplicaResponse:
        """Stop replicas."""
        del context
        response = await self._service.stop_replica(await wire.from_stop_replica(request))
        return await wire.to_stop_replica_response(response)
