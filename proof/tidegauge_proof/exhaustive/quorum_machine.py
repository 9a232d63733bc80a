"""One node of an explored quorum as a value: the real Raft node with its disk, set to a state, stepped and read again.

Times do not count: every timer is far off unless the event is that one of them runs out. Correlation ids and the
numbers of flushes are small numbers again after each step, so that equal states are equal values.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.messages import FetchResponse, FetchSnapshotResponse
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import (
    Candidate,
    Follower,
    IllegalTransitionError,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from tidegauge_controller.raft.values import Batch, Endpoint, LeaderChange, OffsetAndEpoch, ReplicaKey, VoterSet
from tidegauge_controller.raft.voter_history import VoterHistory
from tidegauge_proof.exhaustive.frozen import DIGEST_BYTES
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.quorum.quorum_disk import QuorumDisk, Snapshot
from tidegauge_proof.simulator.quorum.quorum_world import SimNode, real_node

NOW_MS = 1_000
FAR_MS = 1 << 40
"""The deadline of a timer that does not run out."""
LATE = "late"
"""The token of a request whose sender no longer waits for the response."""
TOOL = "tool"
"""The token of a request that changes the voter set."""
_FIRST_ID = 10
"""The correlation id of a request to node 0; those to bootstrap servers, with negative ids, are below it."""
_NEW_ID = 100
_NODE_IDS = frozenset({"leader_id", "token"})
_LEFT_OUT = frozenset(
    {"cluster_id", "endpoints", "preferred", "timestamp_ms", "granting_voters", "election_deadline_ms"}
    | {"fetch_deadline_ms", "update_voter_deadline_ms", "check_quorum_deadline_ms", "deadline_ms", "added_endpoints"}
    | {"begin_deadlines_ms", "linger_deadline_ms", "last_fetch_ms", "fetched_since_check", "max_bytes", "timeout_ms"}
)
Naming = tuple[int, ...]
"""The new number of each node, by its id."""
Item = TypeVar("Item")


def form_of(value: Any, names: Naming) -> Hashable:
    """Return the content of a value, under other names of the nodes."""
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, ReplicaKey):
        return "key", names[value.id], None if value.directory_id is None else value.directory_id[1]
    if isinstance(value, Endpoint):
        return "at", names[value.port]
    if is_dataclass(value):
        return (type(value).__name__, *_fields_of(value, names))
    if isinstance(value, Mapping):
        return tuple(sorted(((_named(key, names), form_of(one, names)) for key, one in value.items()), key=repr))
    if isinstance(value, set | frozenset):
        return tuple(sorted(names[one] for one in value))
    return tuple(form_of(one, names) for one in value)


def _named(key: object, names: Naming) -> object:
    if isinstance(key, int):
        return names[key] if key >= 0 else key
    return repr(form_of(key, names))


def _fields_of(value: Any, names: Naming) -> list[Hashable]:
    found: list[Hashable] = []
    for one in fields(value):
        if one.name not in _LEFT_OUT:
            held = getattr(value, one.name)
            is_id = one.name in _NODE_IDS and isinstance(held, int)
            found.append(names[held] if is_id else form_of(held, names))
    return found


def hashed(form: Hashable) -> bytes:
    """Return the hash of a form."""
    return blake2b(repr(form).encode(), digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True, eq=False)
class Message:
    """A request or a response; there is one object of each."""

    number: int
    value: Any
    _forms: dict[Naming, bytes] = field(default_factory=dict[Naming, bytes])

    def form(self, names: Naming) -> bytes:
        """Return its hash under other names."""
        known = self._forms.get(names)
        if known is None:
            known = self._forms[names] = hashed(form_of(self.value, names))
        return known


class Sent(NamedTuple):
    """A request of a node: the slot that it takes at the sender, the node that it goes to, and the request."""

    slot: int
    to: int
    message: Message


class Responded(NamedTuple):
    """A response, with the token of the request."""

    token: object
    message: Message


class Persisted(NamedTuple):
    """``quorum-state`` has been replaced; the disk before has what it replaced."""


class Snapshotted(NamedTuple):
    """A snapshot was written, of these batches from offset 0 on."""

    snapshot: OffsetAndEpoch
    batches: tuple[Batch, ...]


class Installs(NamedTuple):
    """A snapshot has been fetched, and is to take the place of the log."""

    snapshot: OffsetAndEpoch


class Moved(NamedTuple):
    """The high watermark has moved from this offset."""

    before: int | None


class Appended(NamedTuple):
    """A batch was appended, by a node that had these voters, their record at this offset."""

    batch: Batch
    voters: VoterSet
    voters_offset: int | None


Output = Sent | Responded | Persisted | Snapshotted | Installs | Moved | Appended
Event = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Cell:
    """A state of one node; there is one object of each, and its node takes no further step.

    Attributes:
        number: in the order in which they were found.
        node_id: whose state it is.
        node: the node.
        disk: its disk.
        flushes: the flushes that have begun: number and end offset.
        packed: all of it, to be stepped elsewhere.
        nameless: a hash that is the same whatever the names of the other nodes.
        next: what came of the events so far.
    """

    number: int
    node_id: int
    node: RaftNode
    disk: QuorumDisk
    flushes: tuple[tuple[int, int], ...]
    packed: bytes
    nameless: bytes
    next: dict[Event, tuple[Cell, tuple[Output, ...]] | Exception] = field(default_factory=dict[Any, Any])
    _forms: dict[Naming, bytes] = field(default_factory=dict[Naming, bytes])

    def form(self, names: Naming) -> bytes:
        """Return its hash under other names."""
        known = self._forms.get(names)
        if known is None:
            known = self._forms[names] = hashed(_form_of_node(self.node, self.disk, self.flushes, names))
        return known


def _form_of_node(node: RaftNode, disk: QuorumDisk, flushes: tuple[tuple[int, int], ...], names: Naming) -> Hashable:
    core = node._core  # noqa: SLF001 - a proof looks inside
    log = core.log
    slots = core.connections._slots  # noqa: SLF001 - the same
    requests = sorted(
        (names[slot] if slot >= 0 else slot, repr(form_of(one.request, names))) for slot, one in slots.items()
    )
    return (
        form_of(core.state, names),
        (core.high_watermark, core.pending and (form_of(core.pending.state, names), form_of(core.pending.then, names))),
        (log.start_offset, log.end_offset, log.flushed_offset, log._oldest_valid_flush, tuple(map(tuple, log.epochs))),  # noqa: SLF001 - the same
        form_of(disk.log, names),
        form_of(disk.durable, names),
        (form_of(disk.snapshots, names), form_of(log.snapshots, names), form_of(core.history, names)),
        form_of(disk.election, names),
        (flushes, tuple(sorted(disk.syncs.items()))),
        tuple(requests),
    )


class _Cut(Dice):
    """Dice of a power loss after which the disk has a given number of the unflushed batches, or of truncations."""

    def __init__(self, kept: int) -> None:
        super().__init__(0)
        self._kept = kept

    def below(self, end: int) -> int:
        """Return how many batches stay."""
        return min(self._kept, end - 1)

    def happens(self, probability: float) -> bool:
        """Return whether a truncation has reached the disk.

        The rename of ``quorum-state`` never has.
        """
        del probability
        return self._kept > 0


def _zero() -> float:
    return 0.0


class Machines:
    """All states that nodes were found in, and all messages.

    Attributes:
        executed: how many events nodes have taken; all others were known.
    """

    def __init__(self) -> None:
        self.executed = 0
        self._cells: dict[tuple[int, bytes], Cell] = {}
        self._messages: dict[str, Message] = {}

    def message(self, value: Any) -> Message:
        """Return the message that has a value."""
        name = repr(value)
        known = self._messages.get(name)
        if known is None:
            known = self._messages[name] = Message(len(self._messages), value)
        return known

    def started(self, one: SimNode) -> tuple[Cell, tuple[Output, ...]]:
        """Return a node that starts on its disk, and its first requests."""
        step = _Step(self, one.config.me.id, real_node(one.config, one.disk), one.disk, ())
        step.take(events.Tick())
        return step.cell(), tuple(step.out)

    def apply(self, cell: Cell, event: Event) -> tuple[Cell, tuple[Output, ...]]:
        """Return the state after an event, and what came out.

        Raises:
            Violation: an invariant is broken, or the node fails.
        """
        known = cell.next.get(event)
        if known is None:
            self.executed += 1
            try:
                known = self._apply(cell, event)
            except Violation as broken:
                known = broken
            cell.next[event] = known
        if isinstance(known, Exception):
            raise known
        return known

    def _apply(self, cell: Cell, event: Event) -> tuple[Cell, tuple[Output, ...]]:
        node, disk = pickle.loads(cell.packed)  # noqa: S301 - bytes of this process
        if event[0] == "restart":
            disk.die(_Cut(event[2]), loses_power=event[1])
            disk.syncs.clear()
            config = node._core.config  # noqa: SLF001 - a proof looks inside
            step = _Step(self, cell.node_id, real_node(config, disk), disk, ())
            step.take(events.Tick())
        else:
            step = _Step(self, cell.node_id, node, disk, cell.flushes)
            step.run(event)
        return step.cell(), tuple(step.out)

    def cell(self, node_id: int, node: RaftNode, disk: QuorumDisk, flushes: tuple[tuple[int, int], ...]) -> Cell:
        """Return the state of a node."""
        names = tuple(range(8))
        form = hashed(_form_of_node(node, disk, flushes, names))
        known = self._cells.get((node_id, form))
        if known is None:
            packed = pickle.dumps((node, disk), pickle.HIGHEST_PROTOCOL)
            others = tuple(int(one != node_id) for one in names)
            nameless = hashed(_form_of_node(node, disk, flushes, others))
            known = Cell(len(self._cells), node_id, node, disk, flushes, packed, nameless)
            self._cells[node_id, form] = known
        return known


class _Step:
    """A node that takes one event, its disk, and what comes out."""

    def __init__(
        self, machines: Machines, node_id: int, node: RaftNode, disk: QuorumDisk, flushes: tuple[tuple[int, int], ...]
    ) -> None:
        self._machines, self._node_id, self._node, self._disk = machines, node_id, node, disk
        self._flushes = list(flushes)
        self.out: list[Output] = []

    def run(self, event: Event) -> None:
        """Take an event of the exploration."""
        core, kind = self._node._core, event[0]  # noqa: SLF001 - a proof looks inside
        state: Any = core.state
        match kind:
            case "request":
                self.take(events.RequestReceived(event[1], event[2].value))
            case "response":
                self.take(events.ResponseReceived(event[1] + _FIRST_ID, event[2].value))
            case "failed":
                self.take(events.SendFailed(event[1] + _FIRST_ID))
            case "flushed":
                number, end = self._flushes.pop(0)
                self._disk.synced(number, end)
                self.take(events.Flushed(number, end))
            case "persisted":
                assert self._disk.writing is not None
                self._disk.election, self._disk.writing = self._disk.writing, None
                self.out.append(Persisted())
                self.take(events.ElectionPersisted())
            case "propose":
                self.take(events.Propose("records", state.epoch, 1, 1, "records"))
            case "snapshot":
                self._write_snapshot()
            case "installed":
                snapshot, content = event[1], event[2].value
                self._disk.install(snapshot, content)
                self.take(events.SnapshotInstalled(snapshot, content.voter_set, content.kraft_version))
            case "forget":
                state.parked.pop(event[1], None)
            case "timeout":
                for name in ("election_deadline_ms", "fetch_deadline_ms", "check_quorum_deadline_ms"):
                    if hasattr(state, name):
                        setattr(state, name, NOW_MS)
                self.take(events.Tick())
            case _:
                assert kind == "begin", event
                for voter_id, progress in state.voters.items():
                    if voter_id in state.begin_deadlines_ms and progress.end_offset is None:
                        state.begin_deadlines_ms[voter_id] = NOW_MS
                self.take(events.Tick())

    def _write_snapshot(self) -> None:
        """Write a snapshot of all committed records, and delete them from the log."""
        disk = self._disk
        batches = tuple(batch for batch in disk.whole() if batch.end_offset <= (self._node.high_watermark or 0))
        snapshot = OffsetAndEpoch(batches[-1].end_offset, batches[-1].epoch)
        disk.snapshots[snapshot] = content_of(batches, disk.static)
        self.out.append(Snapshotted(snapshot, batches))
        self.take(events.SnapshotCreated(snapshot))
        disk.move_start(snapshot)
        self.take(events.LogStartMoved(snapshot.offset))

    def take(self, event: events.Event) -> None:
        """Give the node an event and carry its effects out."""
        node = self._node
        mark, voters, at = node.high_watermark, node.history.current, node.history.last_voters_offset
        epoch = node.state.epoch
        try:
            wanted = node.step(event, NOW_MS, _zero)
        except (IllegalTransitionError, ValueError, KeyError, IndexError, AttributeError, AssertionError) as failed:
            raise Violation("Q13", f"node {self._node_id} fails at {type(event).__name__}: {failed!r}") from failed
        if node.state.epoch < epoch:
            raise Violation("Q3", f"the epoch of node {self._node_id} falls from {epoch} to {node.state.epoch}")
        for effect in wanted:
            self._carry_out(effect, mark, voters, at)

    def _carry_out(self, effect: effects.Effect, mark: int | None, voters: VoterSet, at: int | None) -> None:
        disk = self._disk
        match effect:
            case effects.Send():
                message = self._machines.message(effect.request)
                self.out.append(Sent(effect.node_id, effect.endpoint.port, message))
            case effects.Respond():
                self.out.append(Responded(effect.token, self._machines.message(self._filled(effect))))
            case effects.PersistElection():
                disk.writing = effect.election
            case effects.Append():
                disk.log.append(_plain(effect.batch))
                self.out.append(Appended(effect.batch, voters, at))
            case effects.Flush():
                disk.syncs[effect.number] = disk.generation
                self._flushes.append((effect.number, effect.end_offset))
            case effects.Truncate():
                if mark is not None and effect.end_offset < mark:
                    raise Violation("Q8", f"node {self._node_id} truncates to {effect.end_offset}, below {mark}")
                disk.truncate(effect.end_offset)
            case effects.InstallSnapshot():
                self.out.append(Installs(effect.snapshot))
            case effects.HighWatermarkMoved():
                self.out.append(Moved(mark))
            case _:
                pass

    def _filled(self, effect: effects.Respond) -> Any:
        response = effect.response
        if isinstance(response, FetchResponse) and effect.read_from is not None:
            found = [batch for batch in self._disk.log if batch.base_offset >= effect.read_from]
            return replace(response, batches=tuple(found[:1]), endpoints={})
        if isinstance(response, FetchSnapshotResponse) and response.error is ErrorCode.NONE:
            return replace(response, size_bytes=1, data=bytes(1))  # its content is known by its id
        return response

    def cell(self) -> Cell:
        """Return the state of the node, without times and large numbers."""
        core = self._node._core  # noqa: SLF001 - a proof looks inside
        core.now_ms, core.random, core.effects = NOW_MS, _zero, []
        core.cleaning_deadline_ms = FAR_MS
        _settle_state(core.state)
        connections = core.connections
        slots = connections._slots  # noqa: SLF001 - the same
        for slot in [slot for slot, one in slots.items() if one.correlation_id is None]:
            del slots[slot]
        for slot, one in slots.items():
            one.correlation_id, one.sent_ms, one.backoff_until_ms = slot + _FIRST_ID, NOW_MS, 0
        connections._last_correlation_id = _NEW_ID  # noqa: SLF001 - the same
        self._renumber_flushes()
        return self._machines.cell(self._node_id, self._node, self._disk, tuple(self._flushes))

    def _renumber_flushes(self) -> None:
        log, disk = self._node.log, self._disk
        valid = log._oldest_valid_flush  # noqa: SLF001 - a proof looks inside
        order = {number: place for place, (number, _) in enumerate(self._flushes, 1)}
        log._oldest_valid_flush = 1 + sum(number < valid for number in order)  # noqa: SLF001 - the same
        log._last_flush = len(order)  # noqa: SLF001 - the same
        disk.syncs = {order[number]: int(disk.syncs[number] == disk.generation) for number in order}
        disk.generation = 1
        self._flushes = [(order[number], end) for number, end in self._flushes]


def content_of(batches: tuple[Batch, ...], static: VoterSet) -> Snapshot:
    """Return the snapshot that stands for all batches from offset 0 on.

    Args:
        batches: the batches; under kraft.version 1 the first leader's batch has the voters of the formatted nodes.
        static: the voters of the configuration, for kraft.version 0.
    """
    history = VoterHistory(static)
    history.replay_all(batches)
    return Snapshot(batches, history.current if history.voters else None, history.version)


def _settle_state(state: Any) -> None:
    """Put all timers of a state far off, and leave out what only timers use."""
    match state:
        case Unattached() | Prospective() | Candidate():
            state.election_deadline_ms = FAR_MS
        case Resigned():
            state.election_deadline_ms, state.preferred = FAR_MS, ()
        case Follower():
            state.fetch_deadline_ms = state.update_voter_deadline_ms = FAR_MS
        case _:
            assert isinstance(state, Leader)
            _settle_leader(state)


def _settle_leader(leader: Leader) -> None:
    leader.check_quorum_deadline_ms, leader.granting_voters = FAR_MS, ()
    leader.fetched_since_check.clear()
    leader.begin_deadlines_ms = dict.fromkeys(leader.begin_deadlines_ms, FAR_MS)
    leader.parked.pop(LATE, None)
    for parked in leader.parked.values():
        parked.deadline_ms = FAR_MS
    if leader.change is not None:
        leader.change.deadline_ms = FAR_MS
    for progress in [*leader.voters.values(), *leader.observers.values()]:
        progress.last_fetch_ms = min(progress.last_fetch_ms, NOW_MS)
    for progress in leader.voters.values():
        progress.last_caught_up_ms = progress.leader_end_at_last_fetch = -1


def _plain(batch: Batch) -> Batch:
    """Return a batch without its time and its leader's election."""
    control = tuple(
        LeaderChange(one.leader_id, (), ()) if isinstance(one, LeaderChange) else one for one in batch.control
    )
    return replace(batch, control=control, timestamp_ms=0)
