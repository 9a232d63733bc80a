"""The lab in a controller of a quorum: its disk, its network, its requests, and the Lab service over gRPC.

Rules:
    1. Faults that are switched on here are in this process only: a restart clears them.
    2. ``controller_gate`` applies faults to requests that arrive, ``held_fetches`` holds its fetches.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import FETCH
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.v1 import lab_service_pb2_grpc
from tidegauge_broker.log.files import Disk
from tidegauge_broker.log.lab_disk import DiskFaults, LabDisk
from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.channels import Calls
from tidegauge_broker.server.lab.controller_gate import ControllerGate
from tidegauge_broker.server.lab.controller_servicer import ControllerLabServicer
from tidegauge_broker.server.lab.fault_table import FaultTable, Place
from tidegauge_broker.server.lab.held_fetches import HeldFetches
from tidegauge_broker.server.lab.kafka_channels import LabKafkaChannel
from tidegauge_broker.server.quorum.calls import Served
from tidegauge_broker.server.quorum.known_nodes import KnownNodes
from tidegauge_broker.server.quorum.node_lab import NodeLab, Note
from tidegauge_broker.server.quorum.way_to_controllers import Way

_READY = ("", "tidegauge.ready")


class LabNodeChannel(LabKafkaChannel):
    """A channel of this node to which its faults and its hold of fetches apply."""

    def __init__(self, calls: Calls, held: HeldFetches, address: str, client_id: str, way: Way) -> None:
        super().__init__(calls, address, client_id, way.dial, way.login, None, KRAFT_PROTOCOL)
        self._held = held

    async def request(self, key: int, message: Any, timeout_seconds: float, **more: Any) -> Any:
        """Send a request if faults and hold let it pass; return its response."""
        send = super().request
        if key != FETCH:
            return await send(key, message, timeout_seconds, **more)
        return await self._held.exchange(
            self.address, message, timeout_seconds, lambda left_seconds: send(key, message, left_seconds, **more)
        )


class ControllerLab(NodeLab):
    """The lab in a controller's process.

    Args:
        node_id: the controller's.
        address: ``host:port`` of the Lab service.
    """

    def __init__(self, node_id: int, address: str) -> None:
        super().__init__()
        self._disk_faults = DiskFaults()
        self._node_id = node_id
        self._address = address
        self._faults = FaultTable(node_id, self._disk_faults, place=Place.CONTROLLER)
        self._nodes: KnownNodes | None = None
        self._calls = Calls(self._faults, self._node_at, end=fault_table.controller)
        self._gate = ControllerGate(self._faults, self._is_controller)
        self._held = HeldFetches()
        self._server: grpc.aio.Server | None = None

    def _node_at(self, address: str) -> int | None:
        return None if self._nodes is None else self._nodes.at(address)

    def _is_controller(self, node_id: int) -> bool:
        return self._nodes is not None and self._nodes.is_controller(node_id)

    def disk_of(self, directory: Path) -> Disk:
        """Return a disk that records syncs, and meets the disk faults."""
        del directory
        return LabDisk(self._disk_faults)

    def gated(self, handlers: Mapping[int, Served]) -> Mapping[int, Served]:
        """Return the handlers behind the faults."""
        return self._gate.gated(handlers)

    def open_channel(self, address: str, client_id: str) -> KafkaChannel:
        """Open a channel to which the faults apply."""
        return LabNodeChannel(self._calls, self._held, address, client_id, self.way)

    async def start(self, nodes: KnownNodes, note: Note) -> None:
        """Offer health and the Lab service.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, the address can't be bound.
        """
        self._nodes = nodes
        server = self._server = grpc.aio.server()
        health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        servicer = ControllerLabServicer(  # type: ignore[abstract]  # what it lacks is UNIMPLEMENTED
            self._node_id, self._faults, self._held, nodes.at, note
        )
        lab_service_pb2_grpc.add_LabServiceServicer_to_server(servicer, server)
        try:
            server.add_insecure_port(self._address)
        except RuntimeError:
            text = f"lab.listener {self._address} can't be bound: another process has the port; choose another one"
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, text) from None
        await server.start()
        for service in _READY:
            await health.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """End the holds, and stop serving."""
        self._faults.close()
        self._held.close()
        self._gate.close()
        if self._server is not None:
            await self._server.stop(None)
