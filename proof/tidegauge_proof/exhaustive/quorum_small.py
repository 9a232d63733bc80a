"""Every schedule of a small quorum of controllers: the real Raft nodes, their disks, and messages in any order.

Rules:
    1. A message arrives at any time, or never; requests that their sender has given up may still arrive. A request and
       its response are two steps, and a fetch returns one batch.
    2. Any timer may run out at any time: the fetch timeout of a follower, an election timeout, the check-quorum of a
       leader, and the interval of a leader's BeginQuorumEpoch to a voter that has never fetched.
    3. A flush completes at any time. ``quorum-state`` is replaced within the step that needs it: a process that dies
       before that is like one that died before the step, since no response may name an epoch or a vote that is not on
       the disk yet, which is checked.
    4. A snapshot holds all that is committed at its node, whose log begins behind it from then on. It is fetched in one
       slice, and installed within the step that brings it.
    5. A process that dies starts at once: one that stays dead does nothing, like one that no message reaches. Messages
       to it are lost. A power loss keeps any part of the unflushed batches.

Nodes that the first state does not tell apart may change their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.messages import (
    AddVoterRequest,
    ChangeVoterResponse,
    RemoveVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidegauge_controller.raft.states import Leader
from tidegauge_controller.raft.values import Batch, ReplicaKey
from tidegauge_proof.exhaustive.quorum_machine import (
    LATE,
    TOOL,
    Appended,
    Cell,
    Event,
    Installs,
    Machines,
    Message,
    Moved,
    Naming,
    Output,
    Persisted,
    Responded,
    Sent,
    Snapshotted,
    content_of,
    form_of,
    hashed,
)
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.quorum.quorum_checker import QuorumChecker
from tidegauge_proof.simulator.quorum.quorum_world import directory_of, endpoint_of, quorum_of

ASKED, HELD, RESPONDED, LOST = "asked", "held", "responded", "lost"
ADD, REMOVE = "add", "remove"
Action = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class QuorumBounds:
    """How far schedules may go.

    Attributes:
        voters: at the begin.
        observers: controllers that are no voters at the begin.
        version: kraft.version.
        epochs: the highest epoch.
        records: batches that leaders are given, beside the control records of their epochs.
        kills: processes that die and start again with all that they wrote.
        power_losses: processes that die and start again with the flushed batches and any part of the others.
        losses: requests or responses that their sender gives up.
        late: requests that arrive although their sender has given them up.
        changes: of the voter set.
        snapshots: that nodes write.
        timeouts: of any timer, in all; None: as many as there are.
        split: whether a response that is given at once is a step of its own; else it arrives in the request's step, or
            is lost.
    """

    voters: int = 3
    observers: int = 0
    version: int = 0
    epochs: int = 1
    records: int = 0
    kills: int = 0
    power_losses: int = 0
    losses: int = 0
    late: int = 0
    changes: int = 0
    snapshots: int = 0
    timeouts: int | None = None
    split: bool = False


class Used(NamedTuple):
    """How much of the bounds a schedule has used."""

    records: int = 0
    kills: int = 0
    power_losses: int = 0
    losses: int = 0
    late: int = 0
    changes: int = 0
    snapshots: int = 0
    timeouts: int = 0

    def plus(self, name: str) -> Used:
        """Return with one more."""
        return self._replace(**{name: getattr(self, name) + 1})


class Call(NamedTuple):
    """A request whose sender waits: its slot, the receiver, its phase, and the message in flight or sent last."""

    sender: int
    slot: int
    to: int
    phase: str
    message: Message

    def form(self, names: Naming) -> bytes:
        """Return its hash under other names."""
        slot = names[self.slot] if self.slot >= 0 else self.slot
        head = f"{names[self.sender]} {slot} {names[self.to]} {self.phase} "
        return head.encode() + (b"" if self.phase in {HELD, LOST} else self.message.form(names))

    def nameless(self) -> str:
        """Return what it is, whatever the names."""
        return f"{self.phase} {type(self.message.value).__name__}"


@dataclass(slots=True, eq=False)
class Ghost:
    """Facts of a schedule: the leader of each epoch, and all committed batches. There is one object of each."""

    leaders: tuple[tuple[int, int], ...] = ()
    committed: tuple[Batch, ...] = ()
    _forms: dict[Naming, bytes] = field(default_factory=dict[Naming, bytes])

    def form(self, names: Naming) -> bytes:
        """Return its hash under other names."""
        known = self._forms.get(names)
        if known is None:
            leaders = tuple((epoch, names[leader]) for epoch, leader in self.leaders)
            known = self._forms[names] = hashed((leaders, form_of(self.committed, names)))
        return known


class QuorumState(NamedTuple):
    """A state of the quorum; calls and late requests are in order."""

    cells: tuple[Cell, ...]
    calls: tuple[Call, ...]
    late: tuple[tuple[int, Message], ...]
    ghost: Ghost
    used: Used


def _order(call: Call) -> tuple[int, int]:
    return call.sender, call.slot


class SmallQuorum:
    """A small quorum: which steps a state has, and what comes of them.

    Attributes:
        machines: all states of nodes.
    """

    def __init__(self, bounds: QuorumBounds) -> None:
        self.bounds = bounds
        self.machines = Machines()
        self._ghosts: dict[bytes, Ghost] = {}
        self._everyone: Naming = tuple(range(bounds.voters + bounds.observers))
        voters, everyone = range(bounds.voters), range(bounds.voters + bounds.observers)
        self._namings: list[tuple[Naming, Naming]] = []
        for order in permutations(voters):
            names = tuple(order.index(one) if one in voters else one for one in everyone)
            self._namings.append((names, tuple(names.index(one) for one in everyone)))
        self._by_places = {places[: bounds.voters]: (names, places) for names, places in self._namings}
        self._call_forms: dict[tuple[Call, Naming], bytes] = {}

    def begin(self) -> QuorumState:
        """Return the first state: all nodes have started on empty disks."""
        bounds = self.bounds
        timers = QuorumConfig(
            *("", ReplicaKey(0)),
            append_linger_ms=0,
            request_timeout_ms=1 << 50,
            retry_backoff_ms=0,
        )
        nodes, _ = quorum_of(bounds.voters, bounds.observers, bounds.version, timers)
        cells: list[Cell] = []
        outputs: list[tuple[Output, ...]] = []
        for one in nodes.values():
            if one.config.me.id < bounds.voters:
                one.config = replace(one.config, bootstrap_servers=())
            cell, out = self.machines.started(one)
            cells.append(cell)
            outputs.append(out)
        state = QuorumState(tuple(cells), (), (), self._ghost(QuorumChecker()), Used())
        for node_id, out in enumerate(outputs):
            state = self._taken(state, node_id, cells[node_id], cells[node_id], out)
        return state

    def key(self, state: QuorumState) -> bytes:
        """Return the hash of a state, the same under any names of voters."""
        found: list[bytes] = []
        forms = self._call_forms
        for names, places in self._candidates(state):
            parts = [state.cells[place].form(names) for place in places]
            calls: list[bytes] = []
            for call in state.calls:
                known = forms.get((call, names))
                if known is None:
                    known = forms[call, names] = call.form(names)
                calls.append(known)
            calls.sort()
            parts += calls
            parts.append(b"|")
            parts += sorted([b"%d " % names[to] + message.form(names) for to, message in state.late])
            parts.append(state.ghost.form(names))
            found.append(b"".join(parts))
        return hashed((min(found), tuple(state.used)))

    def _candidates(self, state: QuorumState) -> list[tuple[Naming, Naming]]:
        """Return the namings that may give the smallest hash.

        Nodes that are alike without names change places.
        """
        if len(self._namings) == 1:
            return self._namings
        alone = [cell.nameless for cell in state.cells[: self.bounds.voters]]
        order = tuple(sorted(range(len(alone)), key=alone.__getitem__))
        if all(alone[one] != alone[other] for one, other in pairwise(order)):
            return [self._by_places[order]]
        wanted = [alone[place] for place in order]
        return [one for one in self._namings if [alone[place] for place in one[1][: len(alone)]] == wanted]

    def _ghost(self, checker: QuorumChecker) -> Ghost:
        """Return what a checker knows."""
        ghost = Ghost(tuple(sorted(checker.leaders.items())), tuple(checker.committed))
        return self._ghosts.setdefault(ghost.form(self._everyone), ghost)

    # --- steps

    def actions(self, state: QuorumState) -> Iterator[Action]:
        """Return the possible next steps."""
        for node_id, cell in enumerate(state.cells):
            yield from self._own(state, node_id, cell)
        bounds, used = self.bounds, state.used
        for call in state.calls:
            match call.phase:
                case "asked":
                    yield "deliver", call
                    if not bounds.split and used.losses < bounds.losses:
                        yield "deliver in vain", call
                case "responded":
                    yield "respond", call
                case "lost":
                    yield "fail", call
                case _:
                    pass
            if call.phase != LOST and used.losses < bounds.losses:
                yield "lose", call
        if used.late < bounds.late:
            for to, message in state.late:
                yield "deliver late", to, message

    def _own(self, state: QuorumState, node_id: int, cell: Cell) -> Iterator[Action]:
        bounds, used, node = self.bounds, state.used, cell.node
        now = node.state
        may_time_out = bounds.timeouts is None or used.timeouts < bounds.timeouts
        if may_time_out and (node.is_voter or isinstance(now, Leader)):
            yield "timeout", node_id
        if cell.flushes:
            yield "flush", node_id
        if isinstance(now, Leader):
            if used.records < bounds.records:
                yield "propose", node_id
            if any(progress.end_offset is None and voter_id != node_id for voter_id, progress in now.voters.items()):
                yield "begin", node_id
            if used.changes < bounds.changes:
                yield from self._changes(state, node_id)
        if used.snapshots < bounds.snapshots and _has_more_committed(cell):
            yield "snapshot", node_id
        if used.kills < bounds.kills:
            yield "kill", node_id
        if used.power_losses < bounds.power_losses:
            for kept in range(_unflushed(cell) + 1):
                yield "lose power", node_id, kept

    def _changes(self, state: QuorumState, node_id: int) -> Iterator[Action]:
        voters = state.cells[node_id].node.history.current
        for one in range(len(state.cells)):
            yield (REMOVE if one in voters.ids else ADD), node_id, one

    def apply(self, state: QuorumState, action: Action) -> QuorumState | None:
        """Return the state after a step; None beyond the bounds.

        Raises:
            Violation: an invariant is broken.
        """
        kind = action[0]
        used = state.used
        match kind:
            case "timeout":
                if self.bounds.timeouts is not None:
                    used = used.plus("timeouts")
                return self._give(state._replace(used=used), action[1], ("timeout",))
            case "flush":
                return self._give(state, action[1], ("flushed",))
            case "begin":
                return self._give(state, action[1], ("begin",))
            case "propose":
                return self._give(state._replace(used=used.plus("records")), action[1], ("propose",))
            case "snapshot":
                return self._give(state._replace(used=used.plus("snapshots")), action[1], ("snapshot",))
            case "kill":
                return self._restart(state._replace(used=used.plus("kills")), action[1], ("restart", False, 0))
            case "lose power":
                event = "restart", True, action[2]
                return self._restart(state._replace(used=used.plus("power_losses")), action[1], event)
            case "add" | "remove":
                request = self.machines.message(_change(kind, action[2]))
                return self._give(state._replace(used=used.plus("changes")), action[1], ("request", TOOL, request))
            case "deliver late":
                late = tuple(one for one in state.late if one != (action[1], action[2]))
                used = used.plus("late")
                return self._give(state._replace(late=late, used=used), action[1], ("request", LATE, action[2]))
            case _:
                return self._of_call(state, kind, action[1])

    def _of_call(self, state: QuorumState, kind: str, call: Call) -> QuorumState | None:
        others = tuple(one for one in state.calls if one is not call)
        match kind:
            case "deliver":
                held = call._replace(phase=HELD)
                state = state._replace(calls=tuple(sorted((*others, held), key=_order)))
                reached = self._give(state, call.to, ("request", call.sender, call.message))
                return reached if reached is None or self.bounds.split else self._at_once(reached, call)
            case "deliver in vain":
                state = state._replace(calls=others, used=state.used.plus("losses"))
                reached = self._give(state, call.to, ("request", LATE, call.message))
                return reached and self._give(reached, call.sender, ("failed", call.slot))
            case "respond":
                state = state._replace(calls=others)
                return self._give(state, call.sender, ("response", call.slot, call.message))
            case "lose":
                late = _with_late(state.late, call) if call.phase == ASKED else state.late
                state = state._replace(calls=others, late=late, used=state.used.plus("losses"))
                return self._give(state, call.sender, ("failed", call.slot))
            case _:
                return self._give(state._replace(calls=others), call.sender, ("failed", call.slot))

    def _at_once(self, state: QuorumState, asked: Call) -> QuorumState | None:
        """Let the response to a request arrive, if it was given at once."""
        for call in state.calls:
            if (call.sender, call.slot, call.phase) == (asked.sender, asked.slot, RESPONDED) and call.to == asked.to:
                return self._of_call(state, "respond", call)
        return state

    def _restart(self, state: QuorumState, node_id: int, event: Event) -> QuorumState | None:
        """Let a process die and start again: its own calls end, and so do requests to it."""
        calls: list[Call] = []
        late = tuple(one for one in state.late if one[0] != node_id)
        for call in state.calls:
            if call.sender == node_id:
                late = _with_late(late, call) if call.phase == ASKED else late
            elif call.to == node_id and call.phase != RESPONDED:
                calls.append(call._replace(phase=LOST))
            else:
                calls.append(call)
        return self._give(state._replace(calls=tuple(calls), late=late), node_id, event)

    def _give(self, state: QuorumState, node_id: int, event: Event) -> QuorumState | None:
        following: Event | None = event
        while following is not None:
            before = state.cells[node_id]
            cell, out = self.machines.apply(before, following)
            if cell is before and not out:
                return self._forgotten(state)
            state = self._taken(state, node_id, before, cell, out)
            following = self._report(state, out) if cell.node.is_blocked else None
        if state.cells[node_id].node.state.epoch > self.bounds.epochs:
            return None
        return self._forgotten(state)

    def _report(self, state: QuorumState, out: tuple[Output, ...]) -> Event:
        """Return the report of the disk that a node waits for."""
        installs = [one.snapshot for one in out if isinstance(one, Installs)]
        if not installs:
            return ("persisted",)
        [snapshot] = installs
        batches = tuple(batch for batch in state.ghost.committed if batch.end_offset <= snapshot.offset)
        QuorumChecker(committed=list(state.ghost.committed)).snapshot(snapshot, batches)
        return "installed", snapshot, self.machines.message(content_of(batches, state.cells[0].disk.static))

    def _taken(
        self, state: QuorumState, node_id: int, before: Cell, cell: Cell, out: tuple[Output, ...]
    ) -> QuorumState:
        """Return the state after a node's step, which is judged.

        The node's requests and responses are in flight.
        """
        cells = (*state.cells[:node_id], cell, *state.cells[node_id + 1 :])
        calls, late = list(state.calls), state.late
        slots = cell.node._core.connections._slots  # noqa: SLF001 - a proof looks inside
        for call in [one for one in calls if one.sender == node_id]:
            given_up = call.slot not in slots or any(isinstance(one, Sent) and one.slot == call.slot for one in out)
            if given_up:
                calls.remove(call)
                late = _with_late(late, call) if call.phase == ASKED else late
        ghost = state.ghost
        for one in out:
            match one:
                case Sent():
                    if one.slot in slots:
                        calls.append(Call(node_id, one.slot, one.to, ASKED, one.message))
                case Responded():
                    self._judge_response(one, cell, ghost)
                    for place, call in enumerate(calls):
                        if call.sender == one.token and call.to == node_id and call.phase == HELD:
                            _judge_vote(call.message.value, one.message.value, cell)
                            calls[place] = call._replace(phase=RESPONDED, message=one.message)
                case _:
                    ghost = self._judged(ghost, one, node_id, before, cell, cells)
        if isinstance(cell.node.state, Leader) and not isinstance(before.node.state, Leader):
            QuorumChecker(committed=list(ghost.committed)).leads(cell.node, cell.disk)
        return QuorumState(cells, tuple(sorted(calls, key=_order)), late, ghost, state.used)

    def _forgotten(self, state: QuorumState) -> QuorumState:
        """Leave out messages without effect: late requests of former epochs, fetches that were given up."""
        late = state.late
        if late:
            allowed = state.used.late < self.bounds.late
            late = tuple(one for one in late if allowed and _may_matter(one[1].value, state.cells[one[0]]))
        cells = [self._without_deserted(state, node_id) for node_id in range(len(state.cells))]
        return state._replace(cells=tuple(cells), late=late)

    def _without_deserted(self, state: QuorumState, node_id: int) -> Cell:
        """Return a node without the fetches that their senders have given up."""
        cell = state.cells[node_id]
        leader = cell.node.state
        if isinstance(leader, Leader) and leader.parked:
            held = {call.sender for call in state.calls if call.to == node_id and call.phase == HELD}
            for token in [token for token in leader.parked if token not in held]:
                cell, _ = self.machines.apply(cell, ("forget", token))
        return cell

    # --- what must hold

    def _judged(
        self, ghost: Ghost, one: Output, node_id: int, before: Cell, cell: Cell, cells: tuple[Cell, ...]
    ) -> Ghost:
        key = cell.node._core.me  # noqa: SLF001 - a proof looks inside
        checker = QuorumChecker(leaders=dict(ghost.leaders), committed=list(ghost.committed))
        match one:
            case Persisted():
                now, was = cell.disk.election, before.disk.election
                if now.epoch < was.epoch:
                    raise Violation("Q3", f"the epoch of node {node_id} falls from {was.epoch} to {now.epoch}")
                checker.persisted(key, was)
                checker.persisted(key, now)
                return self._ghost(checker)
            case Moved():
                disks = [(other.node._core.me, other.disk) for other in cells]  # noqa: SLF001 - the same
                checker.moved(key, one.before, cell.node, cell.disk, disks)
                return self._ghost(checker)
            case Snapshotted():
                checker.snapshot(one.snapshot, one.batches)
                return ghost
            case Installs():
                return ghost
            case _:
                assert isinstance(one, Appended)
                checker.appends(key, cell.node, one.batch, one.voters, one.voters_offset)
                return ghost

    @staticmethod
    def _judge_response(one: Responded, cell: Cell, ghost: Ghost) -> None:
        """Judge a response: its epoch and its vote are on the disk, an acknowledged voter set is committed."""
        value, disk = one.message.value, cell.disk
        last = disk.durable[-1].epoch if disk.durable else 0
        if value.epoch > max(disk.election.epoch, last):
            raise Violation("Q3", f"node {cell.node_id} names epoch {value.epoch}, which is not on its disk")
        if isinstance(value, ChangeVoterResponse) and one.token == TOOL and value.error is ErrorCode.NONE:
            offset = cell.node.history.last_voters_offset
            if offset is not None:
                QuorumChecker(committed=list(ghost.committed)).acknowledges(offset, cell.node.history.current)


def _judge_vote(request: Any, response: Any, cell: Cell) -> None:
    """Judge the response to a vote: a vote that is granted is on the disk."""
    if not isinstance(response, VoteResponse) or not response.granted or request.pre_vote:
        return
    on_disk = cell.disk.election
    if on_disk.epoch != request.epoch or on_disk.voted is None or on_disk.voted.id != request.candidate.id:
        raise Violation("Q2", f"node {cell.node_id} grants a vote to {request.candidate.id} that is not on its disk")


def _with_late(late: tuple[tuple[int, Message], ...], call: Call) -> tuple[tuple[int, Message], ...]:
    one = call.to, call.message
    return late if one in late else tuple(sorted((*late, one), key=lambda each: (each[0], each[1].number)))


def _may_matter(request: Any, cell: Cell) -> bool:
    """Whether a late request may still change its receiver: it refuses former epochs, and a pre-vote of its own."""
    epoch: int = cell.disk.election.epoch
    if request.epoch < epoch:
        return False
    return not (isinstance(request, VoteRequest) and request.pre_vote and request.epoch == epoch)


def _has_more_committed(cell: Cell) -> bool:
    """Whether a node knows of committed records that its newest snapshot does not have."""
    newest = cell.node.log.newest_snapshot
    return (cell.node.high_watermark or 0) > (0 if newest is None else newest.offset)


def _unflushed(cell: Cell) -> int:
    """Return how many more outcomes than the least a power loss has."""
    log, durable = cell.disk.log, cell.disk.durable
    common = 0
    while common < min(len(log), len(durable)) and log[common] == durable[common]:
        common += 1
    return len(log) - common if common == len(durable) else 1


def _change(kind: str, node_id: int) -> AddVoterRequest | RemoveVoterRequest:
    key = ReplicaKey(node_id, directory_of(node_id))
    if kind == ADD:
        return AddVoterRequest(None, key, (endpoint_of(node_id),), 30_000)
    return RemoveVoterRequest(None, key)
