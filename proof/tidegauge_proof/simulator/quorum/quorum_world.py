"""A quorum of real Raft nodes in virtual time: messages in flight, disks, clocks, and the effects of each step.

Everything that happens is an entry of one heap, so a seed gives one history. A node whose disk is busy takes nothing
else; what reaches it meanwhile waits, in order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.messages import ChangeVoterResponse, FetchResponse, FetchSnapshotResponse, Response
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import NEVER_MS, IllegalTransitionError, Leader
from tidegauge_controller.raft.values import Batch, Endpoint, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from tidegauge_controller.raft.voter_history import VoterHistory
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.quorum.quorum_checker import QuorumChecker
from tidegauge_proof.simulator.quorum.quorum_disk import BOOTSTRAP, QuorumDisk, Snapshot

CLUSTER = "simulated"
SNAPSHOT_BYTES = 3
"""How long a snapshot is taken to be for each batch that it stands for."""

NodeFactory = Callable[[QuorumConfig, QuorumDisk], RaftNode]


def real_node(config: QuorumConfig, disk: QuorumDisk) -> RaftNode:
    """Return a node that begins with what its disk has."""
    log, history = disk.opened()
    return RaftNode(config, log, history, disk.election)


class Waiting(NamedTuple):
    """A request on its way, as its receiver's token: who sent it, in which incarnation, under which correlation id."""

    sender: int
    incarnation: int
    correlation_id: int
    number: int


@dataclass(slots=True)
class SimNode:
    """A controller: its process, if it runs, and its disk.

    Attributes:
        config: its settings.
        disk: its directory.
        raft: the node; None while the process is dead.
        incarnation: counts its processes: messages by or to a former one are lost.
        clock_offset_ms: how far its clock is ahead of the world's.
        is_paused: whether the process is stopped and takes nothing.
        backlog: what waits for the process or its disk.
        tick_ms: when its next timer is looked at, by the world's clock.
        ends: whether the process has shut down in order and is to end.
        is_asked_to_end: whether the process was asked to shut down; it ends after a limit, whatever the quorum does.
    """

    config: QuorumConfig
    disk: QuorumDisk
    raft: RaftNode | None = None
    incarnation: int = 0
    clock_offset_ms: int = 0
    is_paused: bool = False
    backlog: deque[events.Event] = field(default_factory=deque[events.Event])
    tick_ms: int = NEVER_MS
    ends: bool = False
    is_asked_to_end: bool = False


@dataclass(slots=True)
class Faults:
    """How the network and the disks of a history behave.

    Attributes:
        loss: the probability that a message is lost.
        repeat: that it arrives twice.
        longest_delay_ms: of a message.
        longest_write_ms: of a disk's work.
        partitioned: pairs (from, to) between which nothing passes.
    """

    loss: float = 0.0
    repeat: float = 0.0
    longest_delay_ms: int = 5
    longest_write_ms: int = 5
    partitioned: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])


class QuorumWorld:
    """Nodes, network, disks and the checker."""

    def __init__(self, dice: Dice, nodes: dict[int, SimNode], faults: Faults, make: NodeFactory = real_node) -> None:
        self.dice = dice
        self.nodes = nodes
        self.faults = faults
        self.checker = QuorumChecker()
        self.make = make
        self.now_ms = 0
        self.inputs = 0
        self.elections = 0
        self.commits = 0
        self.proposals = 0
        self.voter_changes = 0
        self.snapshots_installed = 0
        self.last_voter_response: ChangeVoterResponse | None = None
        self._heap: list[tuple[int, int, int, int, events.Event]] = []
        self._numbers = 0

    # --- processes

    def start(self, node_id: int) -> None:
        """Start a node's process on what its disk has."""
        node = self.nodes[node_id]
        node.incarnation += 1
        node.backlog.clear()
        node.is_paused = node.ends = node.is_asked_to_end = False
        node.raft = self.make(node.config, node.disk)
        self._step(node_id, events.Tick())
        self._drain(node_id)
        if node.raft is not None:
            self.checker.started(node.config.me, node.raft)

    def die(self, node_id: int, *, loses_power: bool) -> None:
        """End a node's process."""
        node = self.nodes[node_id]
        node.raft = None
        node.backlog.clear()
        node.tick_ms = NEVER_MS
        node.disk.die(self.dice, loses_power=loses_power)
        self.checker.persisted(node.config.me, node.disk.election)

    def resume(self, node_id: int) -> None:
        """Let a paused process go on."""
        self.nodes[node_id].is_paused = False
        self._drain(node_id)

    def running(self) -> list[int]:
        """Return the nodes whose processes run, paused ones too."""
        return [node_id for node_id, node in self.nodes.items() if node.raft is not None]

    def leaders(self) -> list[int]:
        """Return the nodes that believe that they lead, the highest epoch last."""
        found: list[tuple[int, int]] = []
        for node_id, node in self.nodes.items():
            if node.raft is not None and not node.is_paused and isinstance(node.raft.state, Leader):
                found.append((node.raft.state.epoch, node_id))
        return [node_id for _, node_id in sorted(found)]

    # --- time

    def give(self, node_id: int, event: events.Event) -> None:
        """Give a node an event of its own process: a proposal, a resignation, a snapshot, a request of a tool."""
        self._take(node_id, self.nodes[node_id].incarnation, event)

    def run(self, duration_ms: int) -> None:
        """Let time pass, and everything that falls into it happen."""
        until = self.now_ms + duration_ms
        while self._heap and self._heap[0][0] <= until:
            self.now_ms, _, node_id, incarnation, event = heapq.heappop(self._heap)
            self._take(node_id, incarnation, event)
        self.now_ms = until

    def jump(self, node_id: int, by_ms: int) -> None:
        """Let a node's clock jump ahead."""
        node = self.nodes[node_id]
        node.clock_offset_ms += by_ms
        node.tick_ms = self.now_ms
        self._take(node_id, node.incarnation, events.Tick())

    def _at(self, delay_ms: int, node_id: int, incarnation: int, event: events.Event) -> None:
        self._numbers += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._numbers, node_id, incarnation, event))

    def _take(self, node_id: int, incarnation: int, event: events.Event) -> None:
        node = self.nodes[node_id]
        if node.raft is None or incarnation != node.incarnation:
            return
        is_tick = isinstance(event, events.Tick)
        if is_tick:
            if node.tick_ms != self.now_ms:
                return
            node.tick_ms = NEVER_MS
        is_report = isinstance(event, events.ElectionPersisted | events.SnapshotInstalled)
        if node.is_paused or (node.raft.is_blocked and not is_report) or (node.backlog and not is_report):
            if not is_tick:
                (node.backlog.appendleft if is_report else node.backlog.append)(event)
            return
        self._step(node_id, event)
        self._drain(node_id)

    def _drain(self, node_id: int) -> None:
        node = self.nodes[node_id]
        while node.raft is not None and node.backlog and not node.is_paused:
            is_report = isinstance(node.backlog[0], events.ElectionPersisted | events.SnapshotInstalled)
            if node.raft.is_blocked and not is_report:
                return
            self._step(node_id, node.backlog.popleft())
        if node.raft is not None and not node.is_paused and not node.raft.is_blocked:
            self._schedule_tick(node_id)

    def _step(self, node_id: int, event: events.Event) -> None:
        node = self.nodes[node_id]
        raft = node.raft
        assert raft is not None
        self.inputs += 1
        epoch, mark, led = raft.state.epoch, raft.high_watermark, isinstance(raft.state, Leader)
        voters, voters_offset = raft.history.current, raft.history.last_voters_offset
        if isinstance(event, events.ElectionPersisted):
            assert node.disk.writing is not None
            node.disk.election, node.disk.writing = node.disk.writing, None
            self.checker.persisted(node.config.me, node.disk.election)
        if isinstance(event, events.Flushed):
            node.disk.synced(event.number, event.end_offset)
        try:
            wanted = raft.step(event, self.now_ms + node.clock_offset_ms, self._random)
        except (IllegalTransitionError, ValueError, KeyError, IndexError, AttributeError, AssertionError) as failed:
            raise Violation("Q13", f"node {node_id} fails at {type(event).__name__}: {failed!r}") from failed
        self.checker.stepped(node.config.me, epoch, raft)
        for effect in wanted:
            if isinstance(effect, effects.Append):
                self.checker.appends(node.config.me, raft, effect.batch, voters, voters_offset)
            self._carry_out(node_id, node, raft, effect, mark)
        if isinstance(raft.state, Leader) and not led:
            self.elections += 1
            self.checker.leads(raft, node.disk)
        if node.ends and not raft.is_blocked:
            self.die(node_id, loses_power=False)

    def _random(self) -> float:
        return self.dice.below(1 << 20) / (1 << 20)

    def _schedule_tick(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.raft is None:
            return
        due = node.raft.next_deadline_ms()
        if due < NEVER_MS:
            at = max(self.now_ms + 1, due - node.clock_offset_ms)
            if at != node.tick_ms:
                node.tick_ms = at
                self._at(at - self.now_ms, node_id, node.incarnation, events.Tick())

    # --- effects

    def _carry_out(self, node_id: int, node: SimNode, raft: RaftNode, effect: effects.Effect, mark: int | None) -> None:
        disk = node.disk
        match effect:
            case effects.Send():
                self._send(node_id, node, effect)
            case effects.Respond():
                self._respond(node_id, node, effect)
            case effects.PersistElection():
                disk.writing = effect.election
                self._disk_works(node_id, node, events.ElectionPersisted())
            case effects.Append():
                disk.log.append(effect.batch)
            case effects.Flush():
                disk.syncs[effect.number] = disk.generation
                self._disk_works(node_id, node, events.Flushed(effect.number, effect.end_offset))
            case effects.Truncate():
                self.checker.truncates(node.config.me, raft, effect.end_offset)
                disk.truncate(effect.end_offset)
            case effects.InstallSnapshot():
                self._install(node_id, node, effect.snapshot)
            case effects.HighWatermarkMoved():
                others = [(other.config.me, other.disk) for other in self.nodes.values()]
                before = self.checker.committed_end
                self.checker.moved(node.config.me, mark, raft, disk, others)
                self.commits += self.checker.committed_end > before
            case effects.Proposed():
                self.proposals += 1
            case effects.ShutDownCompleted():
                node.ends = True
            case _:
                pass

    def _disk_works(self, node_id: int, node: SimNode, report: events.Event) -> None:
        self._at(self.dice.below(self.faults.longest_write_ms + 1), node_id, node.incarnation, report)

    def _install(self, node_id: int, node: SimNode, snapshot_id: OffsetAndEpoch) -> None:
        content = node.disk.snapshots.get(snapshot_id) or self._content_of(snapshot_id)
        self.checker.snapshot(snapshot_id, content.batches)
        node.disk.install(snapshot_id, content)
        self.snapshots_installed += 1
        report = events.SnapshotInstalled(snapshot_id, content.voter_set, content.kraft_version)
        self._disk_works(node_id, node, report)

    def _content_of(self, snapshot_id: OffsetAndEpoch) -> Snapshot:
        for node in self.nodes.values():
            if snapshot_id in node.disk.snapshots:
                return node.disk.snapshots[snapshot_id]
        batches = tuple(batch for batch in self.checker.committed if batch.end_offset <= snapshot_id.offset)
        return self.content(batches, next(iter(self.nodes.values())).disk.static)

    def content(self, batches: tuple[Batch, ...], static: VoterSet) -> Snapshot:
        """Return the snapshot that stands for these batches, from offset 0 on."""
        history = VoterHistory(static)
        history.replay_all(batches)
        return Snapshot(batches, history.current if history.voters else None, history.version)

    # --- the network

    def _send(self, node_id: int, node: SimNode, effect: effects.Send) -> None:
        to = effect.endpoint.port
        self._numbers += 1
        token = Waiting(node_id, node.incarnation, effect.correlation_id, self._numbers)
        other = self.nodes.get(to)
        if other is None or other.raft is None:
            if self.dice.happens(0.5):
                self._at(1, node_id, node.incarnation, events.SendFailed(effect.correlation_id))
            return
        for delay in self._deliveries(node_id, to):
            self._at(delay, to, other.incarnation, events.RequestReceived(token, effect.request))
            token = token._replace(number=self._numbers)

    def _respond(self, node_id: int, node: SimNode, effect: effects.Respond) -> None:
        token = effect.token
        response = self._filled(node, effect)
        self.checker.named(node.config.me, response.epoch)
        if isinstance(response, ChangeVoterResponse):
            self.last_voter_response = response
        if not isinstance(token, Waiting):
            self._tool_has(node, response)
            return
        for delay in self._deliveries(node_id, token.sender):
            self._at(delay, token.sender, token.incarnation, events.ResponseReceived(token.correlation_id, response))

    def _tool_has(self, node: SimNode, response: Response) -> None:
        """Note the response to a request that a tool made: an acknowledged change must stay."""
        raft = node.raft
        if isinstance(response, ChangeVoterResponse) and response.error == 0 and raft is not None:
            offset = raft.history.last_voters_offset
            if offset is not None:
                self.voter_changes += 1
                self.checker.acknowledges(offset, raft.history.current)

    def _filled(self, node: SimNode, effect: effects.Respond) -> Response:
        response = effect.response
        if isinstance(response, FetchResponse) and effect.read_from is not None:
            found = [batch for batch in node.disk.log if batch.base_offset >= effect.read_from]
            return replace(response, batches=tuple(found[: 1 + self.dice.below(4)]))
        if isinstance(response, FetchSnapshotResponse) and response.error == 0 and response.top_level_error == 0:
            size = SNAPSHOT_BYTES * (1 + len(node.disk.snapshots[response.snapshot].batches))
            data = bytes(min(effect.max_bytes, max(0, size - response.position)))
            return replace(response, size_bytes=size, data=data)
        return response

    def _deliveries(self, sender: int, to: int) -> list[int]:
        faults = self.faults
        if (sender, to) in faults.partitioned or (faults.loss and self.dice.happens(faults.loss)):
            return []
        count = 2 if faults.repeat and self.dice.happens(faults.repeat) else 1
        return [1 + self.dice.below(faults.longest_delay_ms) for _ in range(count)]


def endpoint_of(node_id: int) -> Endpoint:
    """Return where a simulated node listens; its port is its id."""
    return Endpoint("CONTROLLER", "localhost", node_id)


def directory_of(node_id: int, generation: int = 0) -> bytes:
    """Return the id of a node's directory, new for a new disk."""
    return bytes([node_id + 1, generation]) + bytes(14)


def quorum_of(voters: int, observers: int, version: int, timers: QuorumConfig) -> tuple[dict[int, SimNode], VoterSet]:
    """Return formatted nodes that have not started, and their voters.

    Args:
        voters: how many of them, the first ones, are voters.
        observers: how many are controllers that are not.
        version: the kraft.version: 0 with static voters, 1 with voters in the snapshot of the formatted nodes.
        timers: the settings that all share.
    """
    keyed = version > 0
    named = VoterSet.of(
        Voter(ReplicaKey(i, directory_of(i) if keyed else None), (endpoint_of(i),)) for i in range(voters)
    )
    static = VoterSet() if keyed else named
    nodes: dict[int, SimNode] = {}
    for i in range(voters + observers):
        disk = QuorumDisk(static)
        if keyed and i < voters:
            disk.snapshots[BOOTSTRAP] = Snapshot((), named, version)
        config = replace(
            timers,
            cluster_id=CLUSTER,
            me=ReplicaKey(i, directory_of(i)),
            endpoints=(endpoint_of(i),),
            bootstrap_servers=tuple(endpoint_of(j) for j in range(voters)),
        )
        nodes[i] = SimNode(config, disk)
    return nodes, named
