"""Actions on a simulated quorum: proposals, kills, power losses, partitions, clocks, voters, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidegauge_controller.raft import events
from tidegauge_controller.raft.messages import AddVoterRequest, RemoveVoterRequest
from tidegauge_controller.raft.states import Leader
from tidegauge_controller.raft.values import OffsetAndEpoch, ReplicaKey
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.quorum.quorum_disk import QuorumDisk
from tidegauge_proof.simulator.quorum.quorum_world import QuorumWorld, SimNode, directory_of, endpoint_of

MOST_BATCHES = 250
"""Beyond this nothing more is proposed, so that a history stays quick to check."""


@dataclass(slots=True)
class Actor:
    """A world and what the actions remember of it.

    Attributes:
        world: the quorum.
        may_change_voters: whether kraft.version allows it.
        longest_pass_ms: how long nothing may be done at a time: some of the timeouts.
        wipes_left: how many voters' disks may still be lost; more than a minority would lose committed records.
        generations: how many disks each node has had.
        payload: the last proposed value.
    """

    world: QuorumWorld
    may_change_voters: bool
    longest_pass_ms: int = 3000
    wipes_left: int = 0
    generations: dict[int, int] = field(default_factory=dict[int, int])
    payload: int = 0


Action = Callable[[Actor, Dice], str]
"""Does something and says what; an empty text if there is nothing to do."""


def pass_time(actor: Actor, dice: Dice) -> str:
    """Let up to a few milliseconds, or a few timeouts, pass."""
    duration = 1 + dice.below(min((5, 60, 400, 3000)[dice.below(4)], actor.longest_pass_ms))
    actor.world.run(duration)
    return f"{duration} ms pass"


def propose(actor: Actor, dice: Dice) -> str:
    """Propose records at a node that believes that it leads, in its epoch or in one that is over."""
    leaders = actor.world.leaders()
    if not leaders or len(actor.world.checker.committed) > MOST_BATCHES:
        return ""
    node_id = dice.choose(leaders)
    raft = actor.world.nodes[node_id].raft
    assert raft is not None
    actor.payload += 1
    epoch = raft.state.epoch - (1 if dice.happens(0.05) else 0)
    actor.world.give(node_id, events.Propose(actor.payload, epoch, 1 + dice.below(3), 100, actor.payload))
    return f"value {actor.payload} is proposed at node {node_id}"


def kill(actor: Actor, dice: Dice) -> str:
    """End a node's process, with or without its page cache."""
    running = actor.world.running()
    if not running:
        return ""
    node_id, loses_power = dice.choose(running), dice.happens(0.6)
    actor.world.die(node_id, loses_power=loses_power)
    return f"node {node_id} {'loses power' if loses_power else 'is killed'}"


def lose_all_power(actor: Actor, dice: Dice) -> str:
    """End all processes with their page caches."""
    del dice
    for node_id in actor.world.running():
        actor.world.die(node_id, loses_power=True)
    return "all nodes lose power"


def start(actor: Actor, dice: Dice) -> str:
    """Start a node whose process is dead."""
    dead = [node_id for node_id, node in actor.world.nodes.items() if node.raft is None]
    if not dead:
        return ""
    node_id = dice.choose(dead)
    actor.world.start(node_id)
    return f"node {node_id} starts"


def pause(actor: Actor, dice: Dice) -> str:
    """Stop a process, or let it go on."""
    running = actor.world.running()
    if not running:
        return ""
    node_id = dice.choose(running)
    node = actor.world.nodes[node_id]
    if node.is_paused:
        actor.world.resume(node_id)
        return f"node {node_id} goes on"
    node.is_paused = True
    return f"node {node_id} is paused"


def partition(actor: Actor, dice: Dice) -> str:
    """Partition a node from another or from all, one way or both; or heal all links."""
    severed, ids = actor.world.faults.partitioned, list(actor.world.nodes)
    if severed and dice.happens(0.5):
        severed.clear()
        return "all links are healed"
    one, both = dice.choose(ids), dice.happens(0.6)
    others = [other for other in ids if other != one]
    chosen = others if dice.happens(0.5) else [dice.choose(others)] if others else []
    for other in chosen:
        severed.add((one, other))
        if both:
            severed.add((other, one))
    return f"node {one} is partitioned from {chosen}{'' if both else ', one way'}"


def jump(actor: Actor, dice: Dice) -> str:
    """Let a node's clock jump ahead, by a little or beyond every timeout."""
    node_id = dice.choose(list(actor.world.nodes))
    by_ms = 1 + dice.below((50, 5000, 100_000)[dice.below(3)])
    actor.world.jump(node_id, by_ms)
    return f"the clock of node {node_id} jumps by {by_ms} ms"


def hand_over(actor: Actor, dice: Dice) -> str:
    """Let a leader resign, or a process shut down in order."""
    running = [node_id for node_id in actor.world.running() if not actor.world.nodes[node_id].is_paused]
    if not running:
        return ""
    node_id = dice.choose(running)
    raft = actor.world.nodes[node_id].raft
    assert raft is not None
    if isinstance(raft.state, Leader) and dice.happens(0.7):
        actor.world.give(node_id, events.Resign(raft.state.epoch))
        return f"node {node_id} resigns"
    actor.world.nodes[node_id].is_asked_to_end = True
    actor.world.give(node_id, events.ShutDown())
    return f"node {node_id} is asked to shut down"


def snapshot(actor: Actor, dice: Dice) -> str:
    """Let a node write a snapshot of committed records, and perhaps delete what it stands for."""
    able = [(i, node) for i, node in actor.world.nodes.items() if _may_snapshot(node)]
    if not able:
        return ""
    node_id, node = dice.choose(able)
    raft = node.raft
    assert raft is not None
    mark = raft.high_watermark or 0
    newest = raft.log.newest_snapshot
    from_offset = 0 if newest is None else newest.offset
    ends = [batch for batch in node.disk.log if from_offset < batch.end_offset <= mark]
    if not ends:
        return ""
    last = dice.choose(ends)
    key = OffsetAndEpoch(last.end_offset, last.epoch)
    batches = tuple(batch for batch in node.disk.whole() if batch.end_offset <= last.end_offset)
    actor.world.checker.snapshot(key, batches)
    node.disk.snapshots[key] = actor.world.content(batches, node.disk.static)
    actor.world.give(node_id, events.SnapshotCreated(key))
    if dice.happens(0.6):
        node.disk.move_start(key)
        actor.world.give(node_id, events.LogStartMoved(key.offset))
        return f"node {node_id} snapshots {tuple(key)} and deletes what is below"
    return f"node {node_id} snapshots {tuple(key)}"


def _may_snapshot(node: SimNode) -> bool:
    raft = node.raft
    return raft is not None and not raft.is_blocked and not node.is_paused and not node.backlog


def change_voters(actor: Actor, dice: Dice) -> str:
    """Ask a leader to add an observer, or to remove a voter, itself perhaps."""
    leaders = actor.world.leaders()
    if not leaders or not actor.may_change_voters:
        return ""
    node_id = dice.choose(leaders)
    raft = actor.world.nodes[node_id].raft
    assert raft is not None
    voters = raft.history.current
    outside = [node for node in actor.world.nodes.values() if not voters.has(node.config.me)]
    if outside and dice.happens(0.6):
        key = dice.choose(outside).config.me
        request = AddVoterRequest(None, key, (endpoint_of(key.id),), 30_000, ack_when_committed=dice.happens(0.9))
        if not request.ack_when_committed:
            request = replace(request, ack_when_committed=True)
        actor.world.give(node_id, events.RequestReceived(("tool", actor.payload), request))
        return f"node {node_id} is asked to add {key.id}"
    if not voters.keys:
        return ""
    key = dice.choose(voters.keys)
    actor.world.give(node_id, events.RequestReceived(("tool", actor.payload), RemoveVoterRequest(None, key)))
    return f"node {node_id} is asked to remove {key.id}"


def upgrade(actor: Actor, dice: Dice) -> str:
    """Ask a leader to move static voters into the log."""
    leaders = actor.world.leaders()
    if not leaders or actor.may_change_voters:
        return ""
    node_id = dice.choose(leaders)
    actor.world.give(node_id, events.UpgradeKRaftVersion("upgrade", 1))
    return f"node {node_id} is asked for kraft.version 1"


def wipe(actor: Actor, dice: Dice) -> str:
    """Let a dead node lose its disk and come back with a new directory: it must not count as the voter it was."""
    dead = [node_id for node_id, node in actor.world.nodes.items() if node.raft is None]
    if not dead or not actor.may_change_voters or actor.wipes_left < 1:
        return ""
    node_id = dice.choose(dead)
    node = actor.world.nodes[node_id]
    actor.wipes_left -= 1
    generation = actor.generations[node_id] = actor.generations.get(node_id, 0) + 1
    node.disk = QuorumDisk(node.disk.static)
    node.config = replace(node.config, me=ReplicaKey(node_id, directory_of(node_id, generation)))
    return f"node {node_id} loses its disk"


ACTIONS: tuple[tuple[Action, float], ...] = (
    (pass_time, 40),
    (propose, 22),
    (kill, 4),
    (start, 8),
    (lose_all_power, 0.4),
    (pause, 3),
    (partition, 5),
    (jump, 1),
    (hand_over, 1.5),
    (snapshot, 2),
    (change_voters, 4),
    (upgrade, 1),
    (wipe, 0.5),
)
"""Each action with its weight."""
