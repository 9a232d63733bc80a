"""The shell of coordinators in a simulated cluster: leaderships, loads, appends, and a network to the clients.

Nothing moves by itself, as in ``World``: requests and responses are in lists until the caller delivers, repeats or
loses them, and a load goes on when the caller says so. Work inside a broker's process is carried out at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from tidegauge.record_batch import read_header
from tidegauge_broker.coordinator.effects import Append, Defect, Effect, ReadLog, Respond
from tidegauge_broker.coordinator.events import Appended, Elected, LoadCompleted, RecordsRead, Resigned
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.replica.verification import VerificationGuard
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.memory_log import MemoryLog
from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.stored_replica import StoredReplica
from tidegauge_proof.simulator.world import World

_MAX_TURNS = 20
"""Maximum number of turns of the timers while no time passes: a phase that is over at once begins the next one."""
_READ_BYTES = 600
"""Bytes that a step of a load reads: a few batches."""


class Coordinator(Protocol):
    """A coordinator, of groups or of transactions, as the shell calls it."""

    def handle(self, event: Any, now_ms: int) -> list[Effect]:
        """Take an event."""
        ...

    def step(self, now_ms: int) -> list[Effect]:
        """Run the timers."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Return when to call ``step``."""


CoordinatorT = TypeVar("CoordinatorT", bound=Coordinator)


class Process(Generic[CoordinatorT]):
    """A broker's process with its coordinator.

    Attributes:
        replica: what the broker keeps of the internal topic's partition.
        load: the load in progress; None: no load.
        read_to: where in the log the load goes on.
        events: what the replica core has reported, in order, until the event that it is part of is over.
        paused_ms: the last time at which the process stood still.
    """

    def __init__(
        self, broker: MemoryBroker, replica: StoredReplica, incarnation: int, coordinator: CoordinatorT, paused_ms: int
    ) -> None:
        self.broker = broker
        self.replica = replica
        self.incarnation = incarnation
        self.coordinator = coordinator
        self.paused_ms = paused_ms
        self.load: ReadLog | None = None
        self.read_to = 0
        self.events: deque[Any] = deque()

    @property
    def log(self) -> MemoryLog:
        """The log of the internal topic's partition."""
        return self.replica.log

    def leads(self, partition: SimPartition) -> bool:
        """Return whether this leads: a deposed leader may still respond."""
        state, role = partition.state_now, self.replica.partition
        epoch = None if role is None else role.leader_epoch
        return (state.leader, state.leader_epoch) == (self.broker.broker_id, epoch)


class Arrived(Generic[CoordinatorT]):
    """A call that has arrived at a process: one of perhaps several times."""

    def __init__(self, call: Any, process: Process[CoordinatorT]) -> None:
        self.call = call
        self.process = process


@dataclass(slots=True, eq=False)
class Appending:
    """An append in flight, as the replica core knows it: whose it is."""

    owner: CoordinatorWorld[Any]
    process: Process[Any]
    append_id: int
    batch: bytes


@dataclass(slots=True, eq=False)
class Sending:
    """A call in flight to a broker."""

    call: Any
    broker_id: int


@dataclass(slots=True, eq=False)
class Response:
    """A response in flight to a client, from a broker's process."""

    call: Any
    result: Any
    process: Process[Any]


class CoordinatorChecker(Protocol):
    """Looks at what the coordinators do."""

    def appended(self, broker: MemoryBroker, batch: bytes, result: ProduceResult) -> None:
        """Take in the outcome of an append."""

    def arrives(self, process: Any, token: Any) -> None:
        """Take in that a request is about to be handled."""

    def responded(self, process: Any, token: Any, result: Any) -> None:
        """Check a response that leaves a coordinator."""

    def process_ended(self, process: Any) -> None:
        """Forget the requests of a process that has ended."""

    def loaded(self, process: Any, part: bytes) -> None:
        """Take in a part of the log that is handed to a load."""

    def load_completed(self, process: Any) -> None:
        """Check a complete load."""

    def look(self, cluster: Any) -> None:
        """Check the visible state after an event."""


class CoordinatorWorld(Generic[CoordinatorT]):
    """Coordinators and clients on a cluster.

    Args:
        world: the cluster.
        checker: looks at the coordinators.
        partition: the internal topic's; None: the first of the cluster.

    Attributes:
        inputs: how many events and timer runs the coordinators were given.
        has_changed: whether a coordinator was called, or a process began or ended, since the checker last looked.
    """

    def __init__(self, world: World, checker: CoordinatorChecker, partition: SimPartition | None = None) -> None:
        self.world = world
        self.partition = partition or world.partitions[0]
        self._checker = checker
        self.processes: dict[int, Process[CoordinatorT]] = {}
        self.inputs = 0
        self.has_changed = True
        self.requests: list[Sending] = []
        self.responses: list[Response] = []
        world.coordinators = self
        self.look_at_processes()
        for broker_id, replica in self.partition.brokers.items():
            role = replica.partition
            if role is not None and role.leader_role is not None:
                self.processes[broker_id].events.append(Elected(0, role.leader_epoch))
        self.run()

    # Differences between worlds

    def new_coordinator(self, broker: MemoryBroker) -> CoordinatorT:
        """Return the coordinator of a new process of a broker."""
        raise NotImplementedError

    def event_of(self, token: Arrived[CoordinatorT]) -> object:
        """Return the event of a request that arrives."""
        raise NotImplementedError

    def carry_out_other(self, process: Process[CoordinatorT], effect: Effect) -> None:
        """Carry out an effect that not every coordinator has."""

    # Reports of the replica cores

    def leadership_changed(self, broker: MemoryBroker, change: LeadershipChanged) -> None:
        """Keep a leadership that was gained or lost until the event is over."""
        self.look_at_processes()  # the process may have begun within the same event
        kind = Elected if change.leads else Resigned
        process = self.processes[broker.broker_id]
        if change.topic_partition == self.partition.at:
            process.events.append(kind(change.topic_partition.partition, change.leader_epoch))

    def produced(self, broker: MemoryBroker, token: object, results: Sequence[ProduceResult]) -> None:
        """Keep the outcome of an append until the event is over."""
        if not isinstance(token, Appending) or token.owner is not self:
            return
        process = token.process
        if process.incarnation == broker.incarnation and self.processes.get(broker.broker_id) is process:
            result = results[0]
            self._checker.appended(broker, token.batch, result)
            process.events.append(Appended(token.append_id, result.error, result.base_offset))

    # Running

    def look_at_processes(self) -> None:
        """Take note of processes that have ended or begun, and of those that stand still."""
        world = self.world
        for broker_id, broker in world.brokers.items():
            process = self.processes.get(broker_id)
            if process is not None and (not broker.is_running or process.incarnation != broker.incarnation):
                del self.processes[broker_id]
                self.has_changed = True
                self._checker.process_ended(process)
                process = None
            if process is None and broker.is_running:
                self.has_changed = True
                replica, coordinator = self.partition.brokers[broker_id], self.new_coordinator(broker)
                process = self.processes[broker_id] = Process(
                    broker, replica, broker.incarnation, coordinator, world.now_ms
                )
            if process is not None and broker_id in world.paused:
                process.paused_ms = world.now_ms

    def run(self) -> None:
        """Carry out the work inside the processes, until none is left."""
        self.look_at_processes()
        is_quiet = False
        while not is_quiet:
            is_quiet = True
            for process in list(self.processes.values()):
                while process.events:
                    is_quiet = False
                    event = process.events.popleft()
                    self._handle(process, event)
        self._checker.look(self)
        self.has_changed = False

    def _handle(self, process: Process[CoordinatorT], event: object) -> None:
        self.inputs += 1
        self.has_changed = True
        effects = process.coordinator.handle(event, self.world.now_ms)
        if isinstance(event, LoadCompleted):
            self._checker.load_completed(process)
        self._carry_out(process, effects)

    def _carry_out(self, process: Process[CoordinatorT], effects: Sequence[Effect]) -> None:
        broker = process.broker
        for effect in effects:
            if isinstance(effect, Append):
                guard = cast("VerificationGuard | None", effect.guard)
                item = ProducePartition(self.partition.at, effect.batch, guard)
                request = ProduceRequest(effect.acks, effect.timeout_ms, [item], from_coordinator=True)
                token = Appending(self, process, effect.append_id, effect.batch)
                self.carry_out_other(process, effect)
                broker.execute(broker.core.produce(request, token, self.world.now_ms))
            elif isinstance(effect, Respond):
                arrived = effect.token
                assert isinstance(arrived, Arrived)
                self._checker.responded(process, arrived, effect.result)
                self.responses.append(Response(arrived.call, effect.result, process))
            elif isinstance(effect, Defect):
                # A broker takes one group out of service and goes on; a proof must not.
                raise effect.problem
            elif isinstance(effect, ReadLog):
                process.load, process.read_to = effect, 0
            else:
                self.carry_out_other(process, effect)

    def step_timers(self) -> bool:
        """Run the timers of the coordinators whose processes run; return whether any was due.

        A timer due at once runs in a turn of its own, as in a broker, which must come to rest while no time passes.
        """
        is_due = False
        for broker_id, process in list(self.processes.items()):
            deadline_ms = process.coordinator.next_deadline_ms()
            if self.world.is_up(broker_id) and deadline_ms is not None and deadline_ms <= self.world.now_ms:
                is_due = True
                self._run_timers(process)
        self.run()
        return is_due

    def _run_timers(self, process: Process[CoordinatorT]) -> None:
        self.has_changed = True
        for _ in range(_MAX_TURNS):
            self.inputs += 1
            self._carry_out(process, process.coordinator.step(self.world.now_ms))
            deadline_ms = process.coordinator.next_deadline_ms()
            if deadline_ms is None or deadline_ms > self.world.now_ms:
                return
        raise Violation("Rest", f"the timers of broker {process.broker.broker_id} do not come to rest")

    def loading(self) -> list[Process[CoordinatorT]]:
        """Return the processes that run and have a load in progress."""
        return [p for broker_id, p in self.processes.items() if p.load is not None and self.world.is_up(broker_id)]

    def go_on_loading(self, process: Process[CoordinatorT]) -> None:
        """Read the next part of the log; if there is none, or the leadership is lost, the load is complete."""
        load = process.load
        assert load is not None
        log, role = process.log, process.replica.partition
        leads = role is not None and role.leader_role is not None
        part = self.read_for_load(log, process.read_to) if leads else b""
        if part:
            self._checker.loaded(process, part)
            process.events.append(RecordsRead(load.partition, load.leader_epoch, part))
            process.read_to = _end_of(part)
        else:
            process.load = None
            is_committed = role is not None and role.high_watermark >= process.read_to
            process.events.append(LoadCompleted(load.partition, load.leader_epoch, is_committed=is_committed))
        self.run()

    def read_for_load(self, log: MemoryLog, from_offset: int) -> bytes:
        """Return the next part of a log that is loaded."""
        return log.read(from_offset, log.log_end_offset, _READ_BYTES)

    def replicate(self) -> None:
        """Have each broker fetch all that it lacks, and each load go on once."""
        for broker_id in self.world.brokers:
            self.world.whole_round(broker_id)
            self.run()
        for process in self.loading():
            self.go_on_loading(process)

    # The network

    def send(self, call: Any, broker_id: int) -> None:
        """Send a call to a broker."""
        self.requests.append(Sending(call, broker_id))

    def arrive(self, sending: Sending) -> bool:
        """Hand a request over; a dead process has no response, and a paused one none yet."""
        process = self.processes.get(sending.broker_id)
        if process is None or not self.world.is_up(sending.broker_id):
            return False
        token = Arrived(sending.call, process)
        self._checker.arrives(process, token)
        process.events.append(self.event_of(token))
        self.run()
        return True

    def arrive_all(self) -> None:
        """Hand over all requests that are in flight now."""
        requests, self.requests = self.requests, []
        for sending in requests:
            self.arrive(sending)


def _end_of(part: bytes) -> int:
    position, end = 0, 0
    while position < len(part):
        header = read_header(part, position)
        position += header.size_bytes
        end = header.next_offset
    return end
