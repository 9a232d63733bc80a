"""The faults in force on a broker, and their effect on a call.

Contract: ``set`` checks a fault and puts it in force. ``network`` returns the effect of the network faults on a call,
``error`` takes one request and says whether it fails. ``hold`` returns the barrier of it or its response. Faults of
disks and of the clock are kept here too, and handed to these.

Rules:
    1. A network fault with the same ends, direction and kind of effect replaces the older one; a fault of the clock
       replaces the one before.
    2. If several faults apply to a call between brokers, a partition wins, a loss comes next, delays add up.
    3. No fault applies to a broker's calls to itself, or to calls of the Lab service and the health service.
    4. Chances come from the fault's own seed: the same calls in the same order have the same luck.
    5. A held request proceeds when the hold is cleared; when the broker stops, it ends without a response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.apis import apis_meant
from tidegauge.faults.messages import from_message
from tidegauge.faults.model import Plane
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFault, DiskFaults
from tidegauge_broker.server.lab.barrier import Barrier
from tidegauge_broker.server.lab.injectable import check_api, check_error
from tidegauge_broker.server.lab.wall_clock import LabWallClock
from tidegauge_broker.server.service.gate import GatedRequest

IN = lab_pb2.LAB_DIRECTION_IN
OUT = lab_pb2.LAB_DIRECTION_OUT
_BOTH = lab_pb2.LAB_DIRECTION_BOTH
if TYPE_CHECKING:
    Way: TypeAlias = lab_pb2.LabDirection.ValueType


@dataclass(frozen=True, slots=True)
class End:
    """The other end of a call.

    Attributes:
        plane: its kind.
        broker_id: of a broker or a controller; -1 if it isn't known which.
    """

    plane: lab_pb2.LabPlane.ValueType
    broker_id: int = -1

    def __str__(self) -> str:
        if self.plane == lab_pb2.LAB_PLANE_BROKERS:
            return f"broker {self.broker_id}" if self.broker_id >= 0 else "a broker"
        if self.plane == lab_pb2.LAB_PLANE_CONTROLLERS:
            return f"controller {self.broker_id}" if self.broker_id >= 0 else "a controller"
        return "ZooKeeper" if self.plane == lab_pb2.LAB_PLANE_ZOOKEEPER else "clients"


CLIENT = End(lab_pb2.LAB_PLANE_CLIENTS)
ZOOKEEPER = End(lab_pb2.LAB_PLANE_ZOOKEEPER)


_NODES = (lab_pb2.LAB_PLANE_BROKERS, lab_pb2.LAB_PLANE_CONTROLLERS)


class Place(Enum):
    """The kind of process of a table of faults: the other ends of its calls depend on it."""

    BROKER = "a broker in ZooKeeper mode"
    KRAFT_BROKER = "a broker in KRaft mode"
    CONTROLLER = "a controller"
    COMBINED = "a broker that is a controller, too"


def broker(broker_id: int) -> End:
    """Return the end that is another broker."""
    return End(lab_pb2.LAB_PLANE_BROKERS, broker_id)


def controller(controller_id: int) -> End:
    """Return the end that is a controller of the quorum."""
    return End(lab_pb2.LAB_PLANE_CONTROLLERS, controller_id)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The effect of network faults on a call.

    Attributes:
        refused_by: the fault that partitions or loses it; None: it passes.
        delay_ms: it passes after this time.
        delayed_by: the faults whose delays these are.
    """

    refused_by: int | None = None
    delay_ms: int = 0
    delayed_by: tuple[int, ...] = ()


PASSES = Verdict()


class MetError(NamedTuple):
    """The error fault that a request has met, by its number."""

    fault_id: int
    error: lab_pb2.ErrorFault


class MetHold(NamedTuple):
    """The hold that a request or its response has met, by its fault's number, and its barrier."""

    fault_id: int
    barrier: Barrier


@dataclass(slots=True)
class _InForce:
    fault: lab_pb2.LabFault
    chances: Random
    seen: int = 0
    on_disk: DiskFault | None = None
    barrier: Barrier | None = None


@dataclass(slots=True)
class FaultTable:
    """All faults of this broker.

    Attributes:
        broker_id: this broker.
        disks: where disk faults are put.
        clock: the broker's wall clock.
        listeners: called after each change.
        place: the process that these faults are in.
    """

    broker_id: int
    disks: DiskFaults
    clock: LabWallClock = field(default_factory=LabWallClock)
    place: Place = Place.BROKER
    listeners: list[Callable[[], None]] = field(default_factory=list)
    _in_force: dict[int, _InForce] = field(default_factory=dict)
    _last_id: int = 0

    def set(self, asked: lab_pb2.LabFault) -> lab_pb2.LabFault:
        """Put a fault in force; gives it with its id.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault.
        """
        fault = lab_pb2.LabFault()
        fault.CopyFrom(asked)
        fault.met = fault.held = 0
        wanted = from_message(fault)
        if wanted is None:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "the request names no fault")
        if problem := wanted.problem(self.broker_id):
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, problem)
        entry = _InForce(fault, Random(_seed_of(fault)))
        match fault.WhichOneof("kind"):
            case "network":
                self._complete_network(fault.network)
            case "error":
                check_error(fault.error)
            case "hold":
                check_api(fault.hold.rpc)
                entry.barrier = Barrier(outlives_connection=fault.hold.outlives_connection)
            case "disk":
                entry.on_disk = self._to_disk(fault.disk)
            case "clock":
                self.clock.skew(wanted)
        for number in [number for number, other in self._in_force.items() if _same(other.fault, fault)]:
            del self._in_force[number]
        self._last_id += 1
        fault.fault_id = self._last_id
        self._in_force[fault.fault_id] = entry
        self._notify()
        return fault

    def _complete_network(self, fault: lab_pb2.NetworkFault) -> None:
        """Fill in what a request may leave out."""
        if fault.direction == lab_pb2.LAB_DIRECTION_UNSPECIFIED:
            fault.direction = _BOTH
        if fault.plane == lab_pb2.LAB_PLANE_CLIENTS:
            fault.direction = IN
        self._fit_to_mode(fault)
        if fault.broker_ids and fault.plane != lab_pb2.LAB_PLANE_BROKERS:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "ids name brokers: give them with the brokers' plane")
        if fault.WhichOneof("effect") is None:
            fault.partitioned = True

    def _fit_to_mode(self, fault: lab_pb2.NetworkFault) -> None:
        """Let ZooKeeper mean the controllers in KRaft mode: they have its part there.

        Raises:
            TidegaugeError: INVALID_REQUEST, the other end does not exist in this mode, or makes no such calls.
        """
        if fault.plane == lab_pb2.LAB_PLANE_ZOOKEEPER and self.place is not Place.BROKER:
            fault.plane = lab_pb2.LAB_PLANE_CONTROLLERS
        if fault.plane != lab_pb2.LAB_PLANE_CONTROLLERS:
            return
        if self.place is Place.BROKER:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "controllers are nodes of their own in KRaft mode alone (`tidegauge up --kraft`); in ZooKeeper mode "
                "the controller is one of the brokers, and zookeeper is what a broker can be parted from besides",
            )
        if self.place is Place.KRAFT_BROKER and fault.direction == IN:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "controllers make no calls to a broker: it fetches from them, and calls them, so the direction is out "
                "or both",
            )

    def _to_disk(self, fault: lab_pb2.DiskFault) -> DiskFault:
        on_disk = DiskFault(
            operation=fault.operation,
            path_contains=fault.path_contains,
            delay_ms=fault.delay_ms,
            errno_name=fault.errno_name,
            skip=fault.skip,
            times=fault.times,
        )
        try:
            self.disks.add(on_disk)
        except ValueError as problem:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, str(problem)) from None
        return on_disk

    def clear(self, fault_ids: Iterable[int] = (), *, network_only: bool = False) -> list[lab_pb2.LabFault]:
        """End these, or all; gives those that ended."""
        wanted = set(fault_ids)
        ended = []
        for number, entry in list(self._in_force.items()):
            if (wanted and number not in wanted) or (network_only and entry.fault.WhichOneof("kind") != "network"):
                continue
            ended.append(self._shown(entry))
            del self._in_force[number]
            if entry.on_disk is not None:
                self.disks.remove(entry.on_disk)
            if entry.barrier is not None:
                entry.barrier.release()
            if entry.fault.WhichOneof("kind") == "clock":
                self.clock.restore()
        if ended:
            self._notify()
        return ended

    def close(self) -> None:
        """End what holds keep: the broker stops, and waits for none of it."""
        for entry in self._in_force.values():
            if entry.barrier is not None:
                entry.barrier.refuse()

    def listed(self) -> list[lab_pb2.LabFault]:
        """All that are in force, by id; those that are used up are among them."""
        return [self._shown(entry) for _, entry in sorted(self._in_force.items())]

    @staticmethod
    def _shown(entry: _InForce) -> lab_pb2.LabFault:
        if entry.on_disk is not None:
            entry.fault.met = entry.on_disk.met
        if entry.barrier is not None:
            entry.fault.held = entry.barrier.held
        return entry.fault

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    # Effects on a call

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is in force."""
        return not self._in_force

    def network(self, way: Way, end: End, *, count: bool = True) -> Verdict:
        """Return the faults' effect on a call in a direction and end.

        Without ``count`` only partitions are looked for: no chance is drawn and nothing is counted.
        """
        refused_by, delay_ms, delayed_by = None, 0, list[int]()
        for number, entry in self._in_force.items():
            fault = entry.fault
            if fault.WhichOneof("kind") != "network" or not self._meets(fault.network, way, end):
                continue
            effect = fault.network.WhichOneof("effect")
            if effect == "partitioned":
                refused_by = number
            elif not count:
                continue
            elif effect == "delay_ms":
                delay_ms += fault.network.delay_ms
                delayed_by.append(number)
            elif entry.chances.random() >= fault.network.drop_probability:
                continue
            elif refused_by is None:
                refused_by = number
            fault.met += count
        is_met = refused_by is not None or delay_ms
        return Verdict(refused_by, delay_ms, tuple(delayed_by)) if is_met else PASSES

    def count(self, fault_id: int) -> None:
        """Count a call that ``network`` judged without ``count``."""
        self._in_force[fault_id].fault.met += 1

    def _meets(self, fault: lab_pb2.NetworkFault, way: Way, end: End) -> bool:
        if fault.direction not in (way, _BOTH) or (end.plane in _NODES and end.broker_id == self.broker_id):
            return False
        if fault.broker_ids:
            return end.plane in _NODES and end.broker_id in fault.broker_ids
        return fault.plane == end.plane

    def error(self, request: GatedRequest) -> MetError | None:
        """Take one request; return the error that its response carries, or None."""
        for number, entry in self._in_force.items():
            fault = entry.fault
            if fault.WhichOneof("kind") != "error" or not _names(fault.error, request):
                continue
            if not _is_its_turn(entry, fault.error):
                continue
            probability = fault.error.probability or 1.0
            if probability < 1 and entry.chances.random() >= probability:
                continue
            fault.met += 1
            return MetError(number, fault.error)
        return None

    def hold(self, request: GatedRequest, *, after_effect: bool) -> MetHold | None:
        """Return the barrier of this request or of its response, or None."""
        for number, entry in self._in_force.items():
            hold = entry.fault.hold
            if entry.barrier is None or hold.after_effect != after_effect or not _names(hold, request):
                continue
            if _is_its_turn(entry, hold):
                entry.fault.met += 1
                return MetHold(number, entry.barrier)
        return None


def _is_its_turn(entry: _InForce, fault: lab_pb2.ErrorFault | lab_pb2.HoldFault) -> bool:
    """Count a call that the fault means; return whether it is one of those that it affects."""
    entry.seen += 1
    return entry.seen > fault.skip and not (fault.times and entry.fault.met >= fault.times)


def _names(fault: lab_pb2.ErrorFault | lab_pb2.HoldFault, request: GatedRequest) -> bool:
    """Whether the fault means this request: its API, its sender and its object."""
    if request.api not in apis_meant(fault.rpc):
        return False
    if fault.client_id and fault.client_id != request.client_id:
        return False
    if fault.caller and fault.caller != str(request.caller.broker_id):
        plane = Plane.CLIENTS if request.caller.broker_id is None else Plane.BROKERS
        if fault.caller != plane.value:
            return False
    if fault.group and fault.group not in {request.group, request.transactional_id}:
        return False
    if not fault.topic:
        return True
    wanted = fault.partition if fault.HasField("partition") else None
    return any(
        at.topic == fault.topic and (wanted is None or at.partition in (wanted, -1)) for at in request.partitions
    )


def _seed_of(fault: lab_pb2.LabFault) -> int:
    match fault.WhichOneof("kind"):
        case "network":
            return fault.network.seed
        case "error":
            return fault.error.seed
    return 0


def _same(one: lab_pb2.LabFault, other: lab_pb2.LabFault) -> bool:
    """Rule 1."""
    kind = one.WhichOneof("kind")
    if kind != other.WhichOneof("kind"):
        return False
    return kind == "clock" or (kind == "network" and _ends(one) == _ends(other))


def _ends(fault: lab_pb2.LabFault) -> tuple[int, Sequence[int], int, str | None]:
    network = fault.network
    return network.plane, sorted(network.broker_ids), network.direction, network.WhichOneof("effect")
