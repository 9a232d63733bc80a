"""A KRaft broker's requests to the controllers: partitioned, delayed, lost, held or failed by its own faults.

In a process that is a controller, too, these are also its requests to the others, and requests at its listener.

Rules:
    1. Network faults from ``controllers``, or from a controller's id, apply to its fetches of the metadata log and to
       all that it asks the active controller.
    2. Faults of requests, which mean those that arrive everywhere else, mean here what the broker sends, too:
       BrokerHeartbeat, BrokerRegistration, AlterPartition, AllocateProducerIds, AssignReplicasToDirs. No client sends
       these to a broker. An error takes the place of the controller's response.
       In a process with both roles they apply to these as well, and not to other brokers' requests that arrive.
    3. A held request ends as one does whose response does not come: at its sender's timeout.
    4. A hold of the node's fetches of the metadata log holds and steps them as a voter's (``held_fetches``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_broker.log.files import Disk
from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.channels import Calls
from tidegauge_broker.server.lab.controller_gate import ControllerGate
from tidegauge_broker.server.lab.fault_table import FaultTable, MetError, MetHold, Place
from tidegauge_broker.server.lab.held_fetches import HeldFetches
from tidegauge_broker.server.lab.kafka_channels import LabKafkaChannel
from tidegauge_broker.server.quorum.calls import Served
from tidegauge_broker.server.quorum.known_nodes import KnownNodes
from tidegauge_broker.server.quorum.node_lab import NodeLab, Note
from tidegauge_broker.server.quorum.way_to_controllers import Way
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, GatedRequest

OF_BROKERS = frozenset(
    {
        *(apis.BROKER_HEARTBEAT, apis.BROKER_REGISTRATION, apis.ALTER_PARTITION),
        *(apis.ALLOCATE_PRODUCER_IDS, apis.ASSIGN_REPLICAS_TO_DIRS),
    }
)
"""The APIs of rule 2: a response of each has its error at the top."""


class ControllersLab(NodeLab):
    """Applies a broker's faults to its requests to the controllers.

    Args:
        faults: of the broker.
        disk_of: returns what changes the files of a directory.

    Attributes:
        held: the hold of the node's fetches.
    """

    def __init__(self, faults: FaultTable, disk_of: Callable[[Path], Disk]) -> None:
        super().__init__()
        self.held = HeldFetches()
        self._faults = faults
        self._disk_of = disk_of
        self._gate: ControllerGate | None = None
        self._nodes: KnownNodes | None = None
        self._calls = Calls(faults, self.node_at, end=fault_table.controller)

    def node_at(self, address: str) -> int | None:
        """Return the controller that listens at an address; None: it is not known."""
        return None if self._nodes is None else self._nodes.at(address)

    def _is_controller(self, node_id: int) -> bool:
        return self._nodes is not None and self._nodes.is_controller(node_id)

    def disk_of(self, directory: Path) -> Disk:
        """Return what changes the files of a directory."""
        return self._disk_of(directory)

    def gated(self, handlers: Mapping[int, Served]) -> Mapping[int, Served]:
        """Return the handlers behind the faults: the process is a controller, too."""
        self._faults.place = Place.COMBINED
        self._gate = ControllerGate(self._faults, self._is_controller, OF_BROKERS)
        return self._gate.gated(handlers)

    def open_channel(self, address: str, client_id: str) -> KafkaChannel:
        """Open a channel to which the faults apply."""
        return ControllersChannel(self._faults, self.held, self._calls, address, client_id, self.way)

    async def start(self, nodes: KnownNodes, note: Note) -> None:
        """Learn which controller listens where; the broker's own Lab service serves the faults."""
        del note
        self._nodes = nodes

    async def close(self) -> None:
        """End what waits: the node stops."""
        self.held.close()
        if self._gate is not None:
            self._gate.close()


class ControllersChannel(LabKafkaChannel):
    """A channel to a controller.

    Args:
        faults: of the broker.
        held: the hold of the node's fetches.
        calls: all of its calls to controllers.
        address: the controller's.
        client_id: goes with each request.
        way: how it connects.
    """

    def __init__(
        self, faults: FaultTable, held: HeldFetches, calls: Calls, address: str, client_id: str, way: Way
    ) -> None:
        super().__init__(calls, address, client_id, way.dial, way.login, None, KRAFT_PROTOCOL)
        self._faults = faults
        self._fetches = held

    async def request(self, key: int, message: Any, timeout_seconds: float, **more: Any) -> Any:
        """Send a request if the faults let it pass; return its response, or what a fault puts in its place."""
        send = super().request
        if key == apis.FETCH:
            return await self._fetches.exchange(
                self.address, message, timeout_seconds, lambda left_seconds: send(key, message, left_seconds, **more)
            )
        if self._faults.is_empty or key not in OF_BROKERS:
            return await send(key, message, timeout_seconds, **more)
        sent = GatedRequest(
            KRAFT_APIS[key].name,
            Caller("", "CONTROLLER", self._faults.broker_id),
            client_id=self.client_id,
            is_of_kafka=True,
        )
        await _held(self._faults.hold(sent, after_effect=False), timeout_seconds)
        met = self._faults.error(sent)
        if met is not None and not met.error.after_effect:
            return _failed(key, met)
        response = await send(key, message, timeout_seconds, **more)
        if met is not None:
            return _failed(key, met)
        await _held(self._faults.hold(sent, after_effect=True), timeout_seconds)
        return response


async def _held(hold: MetHold | None, limit_seconds: float) -> None:
    """Wait until a hold is released.

    Raises:
        TidegaugeError: REQUEST_TIMED_OUT, the time is over; NETWORK_EXCEPTION, the broker stops.
    """
    if hold is None:
        return
    try:
        async with asyncio.timeout(limit_seconds):
            await hold.barrier.wait()
    except TimeoutError:
        raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, f"held by the lab (fault {hold.fault_id})") from None
    except CallRefused as refused:
        raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, str(refused)) from None


def _failed(key: int, met: MetError) -> Any:
    """Return the response that carries the error of a fault.

    Raises:
        TidegaugeError: NETWORK_EXCEPTION, the fault ends the call without a response.
    """
    if met.error.grpc_status:
        raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, f"ended by the lab (fault {met.fault_id})")
    fields: Mapping[str, int] = {"error_code": int(met.error.error)}
    return KRAFT_PROTOCOL.message_class(key, response=True)(**fields)
