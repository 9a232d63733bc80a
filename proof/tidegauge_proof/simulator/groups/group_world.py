"""The shell of the coordinators in a simulated cluster: leaderships, loads, appends, and a network to the clients.

Nothing moves by itself, as in ``World``: requests and responses stand in lists until the caller delivers, repeats or
loses them, and a load goes on when the caller says so. What happens inside a broker's process is carried out at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegauge.groups import GroupResult
from tidegauge.record_batch import read_header
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import Append, Effect, ReadLog, Respond
from tidegauge_broker.coordinator.events import (
    Appended,
    Elected,
    Event,
    LoadCompleted,
    RecordsRead,
    RequestArrived,
    Resigned,
)
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult
from tidegauge_proof.simulator.groups.group_checker import GroupChecker
from tidegauge_proof.simulator.groups.members import Call
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker
from tidegauge_proof.simulator.world import World

SETTINGS = GroupSettings(
    partitions=1,
    group_initial_rebalance_delay_ms=500,
    offsets_retention_ms=1 << 50,
    offsets_retention_check_interval_ms=1 << 40,
)
_READ_BYTES = 600
"""What a step of a load reads: a few batches."""


@dataclass(slots=True, eq=False)
class Incarnation:
    """A broker's process with its coordinator.

    Attributes:
        reads: what of the log the load in progress has still to read; None: no load.
        events: what the replica core has reported, in order, until the event that it is part of is over.
        paused_ms: the last time at which the process stood still.
    """

    broker: MemoryBroker
    life: int
    coordinator: GroupCoordinator
    paused_ms: int
    load: ReadLog | None = None
    read_to: int = 0
    events: deque[Event] = field(default_factory=deque[Event])


@dataclass(slots=True, eq=False)
class Token:
    """A call that has arrived at a process: one of perhaps several times."""

    call: Call
    process: Incarnation


@dataclass(slots=True, eq=False)
class _Appending:
    process: Incarnation
    append_id: int
    batch: bytes


@dataclass(slots=True, eq=False)
class Sending:
    """A call in flight to a broker."""

    call: Call
    broker_id: int


@dataclass(slots=True, eq=False)
class Response:
    """A response in flight to a client."""

    call: Call
    result: GroupResult


class GroupWorld:
    """Coordinators and clients on a cluster of one partition."""

    def __init__(self, world: World, checker: GroupChecker) -> None:
        self.world = world
        self.checker = checker
        self.processes: dict[int, Incarnation] = {}
        self.requests: list[Sending] = []
        self.responses: list[Response] = []
        self._uuids = 0
        world.coordinators = self
        self.look_at_processes()
        for broker in world.brokers.values():
            role = broker.partition
            if role is not None and role.leader_role is not None:
                self.processes[broker.broker_id].events.append(Elected(0, role.leader_epoch))
        self.run()

    # What the replica cores report

    def leadership_changed(self, broker: MemoryBroker, change: LeadershipChanged) -> None:
        """Keep a leadership that was gained or lost until the event is over."""
        self.look_at_processes()  # the process may have begun within the same event
        kind = Elected if change.leads else Resigned
        process = self.processes[broker.broker_id]
        process.events.append(kind(change.topic_partition.partition, change.leader_epoch))

    def produced(self, broker: MemoryBroker, token: object, results: Sequence[ProduceResult]) -> None:
        """Keep the outcome of an append until the event is over."""
        assert isinstance(token, _Appending)
        process = token.process
        if process.life == broker.life and self.processes.get(broker.broker_id) is process:
            result = results[0]
            self.checker.appended(broker, token.batch, result)
            process.events.append(Appended(token.append_id, result.error, result.base_offset))

    # Running

    def look_at_processes(self) -> None:
        """Take note of processes that have ended or begun, and of those that stand still."""
        world = self.world
        for broker_id, broker in world.brokers.items():
            process = self.processes.get(broker_id)
            if process is not None and (not broker.is_running or process.life != broker.life):
                del self.processes[broker_id]
                self.checker.process_ended(process)
                process = None
            if process is None and broker.is_running:
                coordinator = GroupCoordinator(SETTINGS, world.now_ms)
                coordinator.step(world.now_ms)  # the first retention run, which finds nothing
                process = self.processes[broker_id] = Incarnation(broker, broker.life, coordinator, world.now_ms)
            if process is not None and broker_id in world.paused:
                process.paused_ms = world.now_ms

    def run(self) -> None:
        """Carry out what is to be done inside the processes, until nothing is."""
        self.look_at_processes()
        is_quiet = False
        while not is_quiet:
            is_quiet = True
            for process in list(self.processes.values()):
                while process.events:
                    is_quiet = False
                    event = process.events.popleft()
                    self._handle(process, event)
        self.checker.look_at_groups(self)

    def _handle(self, process: Incarnation, event: Event) -> None:
        effects = process.coordinator.handle(event, self.world.now_ms)
        if isinstance(event, LoadCompleted):
            self.checker.load_completed(process)
        self._carry_out(process, effects)

    def _carry_out(self, process: Incarnation, effects: Sequence[Effect]) -> None:
        broker = process.broker
        for effect in effects:
            if isinstance(effect, Append):
                request = ProduceRequest(effect.acks, effect.timeout_ms, [ProducePartition(AT, effect.batch)])
                token = _Appending(process, effect.append_id, effect.batch)
                broker.execute(broker.core.produce(request, token, self.world.now_ms))
            elif isinstance(effect, Respond):
                token_of = effect.token
                assert isinstance(token_of, Token)
                self.checker.responded(process, token_of, effect.result)
                self.responses.append(Response(token_of.call, effect.result))
            elif isinstance(effect, ReadLog):
                process.load, process.read_to = effect, 0

    def step_timers(self) -> bool:
        """Run the timers of the coordinators whose processes run; return whether any was due."""
        is_due = False
        for broker_id, process in list(self.processes.items()):
            deadline_ms = process.coordinator.next_deadline_ms()
            if self.world.is_up(broker_id) and deadline_ms is not None and deadline_ms <= self.world.now_ms:
                is_due = True
                self._carry_out(process, process.coordinator.step(self.world.now_ms))
        self.run()
        return is_due

    def loading(self) -> list[Incarnation]:
        """Return the processes that run and have a load in progress."""
        return [p for broker_id, p in self.processes.items() if p.load is not None and self.world.is_up(broker_id)]

    def go_on_loading(self, process: Incarnation) -> None:
        """Read the next part of the log; where there is none, or the leadership is lost, the load is complete."""
        load = process.load
        assert load is not None
        log, role = process.broker.log, process.broker.partition
        leads = role is not None and role.leader_role is not None
        part = log.read(process.read_to, log.log_end_offset, _READ_BYTES) if leads else b""
        if part:
            self.checker.loaded(process, part)
            process.events.append(RecordsRead(load.partition, load.leader_epoch, part))
            process.read_to = _end_of(part)
        else:
            process.load = None
            process.events.append(LoadCompleted(load.partition, load.leader_epoch))
        self.run()

    # The network

    def send(self, call: Call, broker_id: int) -> None:
        """Send a call to a broker."""
        self.requests.append(Sending(call, broker_id))

    def arrive(self, sending: Sending) -> bool:
        """Hand a request over; a dead process has no response, and a paused one none yet."""
        process = self.processes.get(sending.broker_id)
        if process is None or not self.world.is_up(sending.broker_id):
            return False
        self._uuids += 1
        token = Token(sending.call, process)
        self.checker.arrives(process, token)
        process.events.append(RequestArrived(token, sending.call.request, f"{self._uuids}"))
        self.run()
        return True


def _end_of(part: bytes) -> int:
    position, end = 0, 0
    while position < len(part):
        header = read_header(part, position)
        position += header.size_bytes
        end = header.next_offset
    return end
