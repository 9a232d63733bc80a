"""One simulated history of a quorum of controllers: nodes that die, lose power, are partitioned, join and leave.

Even seeds have static voters (kraft.version 0), odd ones have them in the log (1). After the faults every node runs and
all links are healed; then a leader must be elected, and a proposal must be committed.
"""

from __future__ import annotations

from functools import partial

from tidegauge.collections_off import collections_off
from tidegauge_controller.raft import events
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.values import ReplicaKey
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.coordinator_history import History
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.quorum.quorum_actions import ACTIONS, Actor
from tidegauge_proof.simulator.quorum.quorum_world import Faults, NodeFactory, QuorumWorld, quorum_of, real_node
from tidegauge_proof.simulator.swarm import Lots

_ATTEMPTS = 8
_REST_MS = 4000
_REST_ROUNDS = 20


class QuorumHistory(History):
    """The result of a seed.

    Attributes:
        elections: how many leaders were elected.
        commits: how often the end of the committed records moved.
        voter_changes: how many changes of the voter set were acknowledged.
        snapshots: how many snapshots were installed from another node.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.elections = 0
        self.commits = 0
        self.voter_changes = 0
        self.snapshots = 0


def quorum_history_of(seed: int, steps: int, *, tells: bool = False, make: NodeFactory = real_node) -> QuorumHistory:
    """Run a seed; the same seed gives the same history.

    Args:
        seed: chooses the quorum, its timers, its faults, and everything that happens.
        steps: how many actions.
        tells: whether to keep what each step did, in words.
        make: makes the nodes; a test puts a mutant in here.
    """
    with collections_off():
        return _run(seed, steps, tells=tells, make=make)


def _run(seed: int, steps: int, *, tells: bool, make: NodeFactory) -> QuorumHistory:
    history = QuorumHistory(seed)
    dice = Dice(seed)
    world, actor = _staged(dice, seed, make)
    lots = Lots([weight if dice.happens(0.8) else weight / 4 for _, weight in ACTIONS])
    for node_id in world.nodes:
        world.start(node_id)
    history.play(steps, partial(_act, actor, dice, lots), partial(_heal, actor), tells=tells)
    history.elections, history.commits, history.inputs = world.elections, world.commits, world.inputs
    history.voter_changes, history.snapshots = world.voter_changes, world.snapshots_installed
    return history


def _staged(dice: Dice, seed: int, make: NodeFactory) -> tuple[QuorumWorld, Actor]:
    version = seed % 2
    voters = (1, 2, 3, 3, 3, 4, 5)[dice.below(7)]
    timers = QuorumConfig(
        "",
        ReplicaKey(0),
        election_timeout_ms=(1, 100, 1000)[dice.below(3)],
        fetch_timeout_ms=(3, 500, 2000)[dice.below(3)],
        election_backoff_max_ms=(0, 100, 1000)[dice.below(3)],
        append_linger_ms=(0, 25)[dice.below(2)],
        request_timeout_ms=(10, 2000)[dice.below(2)],
        retry_backoff_ms=(0, 20)[dice.below(2)],
        fetch_snapshot_max_bytes=(1, 7, 1024)[dice.below(3)],
    )
    faults = Faults(
        loss=(0.0, 0.02, 0.2)[dice.below(3)],
        repeat=(0.0, 0.1)[dice.below(2)],
        longest_delay_ms=(1, 5, 200)[dice.below(3)],
        longest_write_ms=(0, 5, 100)[dice.below(3)],
    )
    nodes, _ = quorum_of(voters, dice.below(3), version, timers)
    world = QuorumWorld(dice, nodes, faults, make)
    longest = 20 + 2 * min(timers.fetch_timeout_ms, 20 * timers.election_timeout_ms)
    return world, Actor(world, version > 0, longest_pass_ms=longest, wipes_left=1 if voters >= 3 else 0)


def _act(actor: Actor, dice: Dice, lots: Lots) -> str:
    dice.begin()
    for _ in range(_ATTEMPTS):
        words = ACTIONS[lots.place(dice.below(lots.end))][0](actor, dice)
        if words:
            if actor.world.now_ms % 5 == 0:
                _match_logs(actor.world)
            return words
    return ""


def _match_logs(world: QuorumWorld) -> None:
    world.checker.logs_match([(node_id, node.disk.whole()) for node_id, node in world.nodes.items()])


def _heal(actor: Actor) -> None:
    """End the faults; a leader must be elected and commit a proposal, unless no voter can win any more (Q14).

    Nodes that run are not restarted if their timers allow it: a restart forgets whom a node has heard. A process that
    was asked to shut down ends after a round, as the real one does after its limit: with the longest log it can neither
    lead nor be passed over.
    """
    world = actor.world
    world.faults.partitioned.clear()
    world.faults.loss = world.faults.repeat = 0.0
    world.faults.longest_delay_ms, world.faults.longest_write_ms = 1, 0
    for node_id, node in world.nodes.items():
        if _is_patient(node.config):
            world.resume(node_id)
            continue
        if node.raft is not None:
            world.die(node_id, loses_power=False)
        node.config = _patient(node.config)
    for _ in range(_REST_ROUNDS):
        for node_id, node in world.nodes.items():
            if node.raft is None:
                world.start(node_id)
        world.run(_REST_MS)
        for node_id, node in world.nodes.items():
            if node.is_asked_to_end and node.raft is not None:
                world.die(node_id, loses_power=False)
        _match_logs(world)
        leaders = world.leaders()
        before = world.checker.committed_end
        if leaders:
            raft = world.nodes[leaders[-1]].raft
            assert raft is not None
            world.give(leaders[-1], events.Propose("last", raft.state.epoch, 1, 1, "last"))
            world.run(_REST_MS)
            if world.checker.committed_end > before and world.leaders() == leaders[-1:]:
                return
    if _electable(world):
        states = {node_id: str(node.raft and node.raft.state) for node_id, node in world.nodes.items()}
        raise Violation("Q14", f"no leader commits a proposal after the faults: {states}")


def _is_patient(config: QuorumConfig) -> bool:
    """Whether the timeouts are longer than messages, disks and waiting fetches take."""
    return config.election_timeout_ms >= 100 and min(config.fetch_timeout_ms, config.request_timeout_ms) >= 500


def _electable(world: QuorumWorld) -> list[int]:
    """Return the nodes electable by a majority of their own logs' voters.

    There may be none when a voter has lost its disk: a voter set that was in force but never committed may need it, and
    whoever has another set lacks records that its voters have.
    """
    rafts = {node_id: node.raft for node_id, node in world.nodes.items() if node.raft is not None}
    found = []
    for node_id, raft in rafts.items():
        voters, end = raft.history.current, (raft.log.last_epoch, raft.log.end_offset)
        granting = [
            other
            for other, its in rafts.items()
            if voters.has(world.nodes[other].config.me) and (its.log.last_epoch, its.log.end_offset) <= end
        ]
        if node_id in granting and len(granting) >= voters.majority:
            found.append(node_id)
    return found


def _patient(config: QuorumConfig) -> QuorumConfig:
    """Return the settings with timeouts that are longer than messages and disks take."""
    return QuorumConfig(
        config.cluster_id,
        config.me,
        config.endpoints,
        config.bootstrap_servers,
        election_timeout_ms=1000,
        fetch_timeout_ms=2000,
    )
