"""The services of a gRPC listener: the broker's, health, reflection, and the lab's.

Health is SERVING for the broker as soon as it listens, and for ``READY_SERVICE`` once the controller has sent all
that the broker's registration brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

from tidegauge.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    broker_service_pb2,
    broker_service_pb2_grpc,
    control_service_pb2,
    control_service_pb2_grpc,
    controller_service_pb2,
    controller_service_pb2_grpc,
    replica_log_service_pb2,
    replica_log_service_pb2_grpc,
    replication_service_pb2,
    replication_service_pb2_grpc,
)
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.wire.grpc.admin import AdminServicer
from tidegauge_broker.server.wire.grpc.broker import BrokerServicer
from tidegauge_broker.server.wire.grpc.control import ControlServicer
from tidegauge_broker.server.wire.grpc.controller import ControllerServicer
from tidegauge_broker.server.wire.grpc.replica_log import ReplicaLogServicer
from tidegauge_broker.server.wire.grpc.replication import ReplicationServicer

READY_SERVICE = "tidegauge.ready"
_FILES = (
    broker_service_pb2.DESCRIPTOR,
    admin_service_pb2.DESCRIPTOR,
    replication_service_pb2.DESCRIPTOR,
    control_service_pb2.DESCRIPTOR,
    controller_service_pb2.DESCRIPTOR,
    replica_log_service_pb2.DESCRIPTOR,
)
MoreServices = Callable[[grpc.aio.Server], Sequence[str]]


class OfferedServices:
    """The services of a gRPC listener.

    Args:
        service: the broker's.
        replicas: whose logs ``ReadReplica`` reads.
        now_ms: the broker's clock.
        more: adds further services to a server; returns their full names.
        kafka_beside: returns the listeners for Kafka clients beside a listener (``Listeners.kafka_beside``).
    """

    def __init__(
        self,
        service: BrokerService,
        replicas: ReplicaManager,
        now_ms: Callable[[], int],
        more: MoreServices,
        kafka_beside: Callable[[str], Mapping[str, Sequence[str]]],
    ) -> None:
        self._service = service
        self._replicas = replicas
        self._now_ms = now_ms
        self._more = more
        self._kafka_beside = kafka_beside
        self._health = HealthServicer()

    def add_to(self, server: grpc.aio.Server, listener: str) -> None:
        """Add all to the server of the listener of this name."""
        service = self._service
        broker = BrokerServicer(service, self._now_ms, listener, self._kafka_beside(listener))
        broker_service_pb2_grpc.add_BrokerServiceServicer_to_server(broker, server)
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(AdminServicer(service), server)
        replication_service_pb2_grpc.add_ReplicationServiceServicer_to_server(
            ReplicationServicer(service, listener), server
        )
        control_service_pb2_grpc.add_ControlServiceServicer_to_server(ControlServicer(service), server)
        controller_service_pb2_grpc.add_ControllerServiceServicer_to_server(ControllerServicer(service), server)
        replica_log_service_pb2_grpc.add_ReplicaLogServiceServicer_to_server(ReplicaLogServicer(self._replicas), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [name.full_name for file in _FILES for name in file.services_by_name.values()]
        names += self._more(server)
        names += [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
        # As enable_server_reflection, which would take a guarded server for one without asyncio.
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(ReflectionServicer(names), server)

    async def set_health(self, service: str, *, serving: bool) -> None:
        """Say whether a service serves; the empty name stands for the broker."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set(service, status)
