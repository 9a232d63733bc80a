"""The lab in a controller of a quorum: its disk, its network, its requests, and the Lab service over gRPC.

Rules:
    1. What is switched on here is in this process only: a restart clears it.
    2. A controller is known to others by the client id of its Raft requests (``raft-client-ID``), a broker by the id in
       its own requests; whoever else calls is a client.
    3. A request across a partition gets no response: its sender gives it up at its own timeout.
    4. A hold of the node's fetches keeps each one until it is released or its time is over, so that a held follower
       stands for election when its fetch timeout ends, as one does whose leader does not respond.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import FETCH
from tidegauge.kafka.kraft.apis import KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_service_pb2_grpc
from tidegauge_broker.log.lab_disk import DiskFaults, LabDisk
from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.barrier import Barrier
from tidegauge_broker.server.lab.channels import Calls
from tidegauge_broker.server.lab.controller_servicer import ControllerLabServicer
from tidegauge_broker.server.lab.fault_table import FaultTable, Place
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.lab.kafka_channels import LabKafkaChannel
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.known_nodes import KnownNodes
from tidegauge_broker.server.quorum.node_lab import NodeLab, Note
from tidegauge_broker.server.quorum.requests_in import TOPIC
from tidegauge_broker.server.quorum.way_to_controllers import Way
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, GatedRequest

_RAFT_CLIENT = re.compile(r"raft-client-(\d{1,10})")
_FOLLOWERS_FETCH = "ReplicaFetch"
_METADATA = TopicPartition(TOPIC, 0)
_READY = ("", "tidegauge.ready")


class HeldFetches:
    """Whether this node's fetches of the metadata log are held, and where they wait."""

    def __init__(self) -> None:
        self._barrier: Barrier | None = None

    @property
    def is_held(self) -> bool:
        """Whether they are."""
        return self._barrier is not None

    def hold(self) -> bool:
        """Hold them; return whether that changed anything."""
        if self._barrier is not None:
            return False
        self._barrier = Barrier()
        return True

    def release(self) -> bool:
        """Let them go on; return whether that changed anything."""
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            barrier.release()
        return barrier is not None

    async def wait(self, limit_seconds: float) -> None:
        """Wait while they are held.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, the time is over, or the node stops.
        """
        if self._barrier is None:
            return
        try:
            async with asyncio.timeout(limit_seconds):
                await self._barrier.wait()
        except (TimeoutError, CallRefused):
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "held by the lab") from None

    def close(self) -> None:
        """End what waits: the node stops."""
        if self._barrier is not None:
            self._barrier.refuse()


class LabNodeChannel(LabKafkaChannel):
    """A channel of this node to which its faults and its hold of fetches apply."""

    def __init__(self, calls: Calls, held: HeldFetches, address: str, client_id: str, way: Way) -> None:
        super().__init__(calls, address, client_id, way.dial, way.login, None, KRAFT_PROTOCOL)
        self._held = held

    async def request(self, key: int, message: Any, timeout_seconds: float, **more: Any) -> Any:
        """Send a request if faults and hold let it pass; return its response."""
        if key == FETCH and self._held.is_held:
            await self._held.wait(timeout_seconds)
        return await super().request(key, message, timeout_seconds, **more)


class ControllerLab(NodeLab):
    """See the module.

    Args:
        node_id: the controller's.
        address: ``host:port`` of the Lab service.
    """

    def __init__(self, node_id: int, address: str) -> None:
        super().__init__()
        disk_faults = DiskFaults()
        self.disk = LabDisk(disk_faults)
        self._node_id = node_id
        self._address = address
        self._faults = FaultTable(node_id, disk_faults, place=Place.CONTROLLER)
        self._nodes: KnownNodes | None = None
        self._calls = Calls(self._faults, self._node_at, end=fault_table.controller)
        self._gate = LabGate(self._faults, is_controller=self._is_controller)
        self._held = HeldFetches()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None

    def _node_at(self, address: str) -> int | None:
        return None if self._nodes is None else self._nodes.at(address)

    def _is_controller(self, node_id: int) -> bool:
        return self._nodes is not None and self._nodes.is_controller(node_id)

    def open_channel(self, address: str, client_id: str) -> KafkaChannel:
        """Open a channel to which the faults apply."""
        return LabNodeChannel(self._calls, self._held, address, client_id, self.way)

    def gated(self, handlers: Mapping[int, Served]) -> Mapping[int, Served]:
        """Return handlers before which the faults stand."""
        return {key: self._gated(served) for key, served in handlers.items()}

    def _gated(self, served: Served) -> Served:
        def handle(call: Call) -> None:
            if self._gate.is_open:
                served.handle(call)
            else:
                self._begin(self._admit(served, call))

        return served._replace(handle=handle)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, served: Served, call: Call) -> None:
        request = _request_of(call)
        try:
            error = await self._gate.admit(request)
        except CallRefused:
            return  # rule 3
        if error is not None and not error.after_effect:
            call.refuse(ErrorCode.of(error.error), "injected by the lab")
            return
        hold = self._gate.hold_of(request)
        if error is None and hold is None:
            served.handle(call)
            return

        async def respond(response: Any) -> None:
            if hold is not None:
                await hold.wait()
            if error is None:
                call.respond(response)
            else:
                call.refuse(ErrorCode.of(error.error), "injected by the lab")

        def respond_later(response: Any) -> None:
            self._begin(respond(response))

        served.handle(
            Call(
                call.key,
                call.version,
                call.message,
                respond_later,
                call.refuse,
                call.principal,
                call.host,
                call.client_id,
            )
        )

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
            self._node_id, self._faults, self._held, _METADATA, note
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
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            await self._server.stop(None)


def _request_of(call: Call) -> GatedRequest:
    name = _FOLLOWERS_FETCH if call.key == FETCH else KRAFT_APIS[call.key].name
    return GatedRequest(
        name, Caller("", "CONTROLLER", _sender(call), call.host), client_id=call.client_id, is_of_kafka=True
    )


def _sender(call: Call) -> int | None:
    """Return the node that sends a request; None: a client (rule 2)."""
    raft = _RAFT_CLIENT.fullmatch(call.client_id)
    if raft is not None:
        return int(raft[1])
    broker_id = getattr(call.message, "broker_id", None)
    return broker_id if isinstance(broker_id, int) else None
