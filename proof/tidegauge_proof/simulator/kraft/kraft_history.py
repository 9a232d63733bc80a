"""One simulated history of a cluster in KRaft mode, with eligible leader replicas or without (KIP-966).

After the faults every process runs and all links are healed: each partition must have a leader, all its replicas must
come into its ISR, and records must be taken; then all replicas have all acknowledged records.
"""

from __future__ import annotations

from functools import partial

from tidegauge.collections_off import collections_off
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.values import ReplicaKey
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.coordinator_history import History
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.kraft.kraft_actions import ACTIONS
from tidegauge_proof.simulator.kraft.kraft_quorum import KRaftQuorum
from tidegauge_proof.simulator.kraft.kraft_world import KRaftWorld
from tidegauge_proof.simulator.quorum.quorum_world import Faults, NodeFactory, real_node
from tidegauge_proof.simulator.swarm import Lots

BROKERS = 3
_ATTEMPTS = 8
_START_MS = 3000
_REST_MS = 500
_REST_ROUNDS = 60


class KRaftHistory(History):
    """The outcome of a seed.

    Attributes:
        acknowledged: how many batches were acknowledged.
        elections: how many leaders of the quorum were elected.
        images: how many images were committed.
        reassigned: how many reassignments have ended with their target.
        snapshots_loaded: how many brokers and controllers have begun with the image of a snapshot.
        visible_losses: how many acknowledged records unclean elections took, which were recorded as such.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.acknowledged = 0
        self.elections = 0
        self.images = 0
        self.visible_losses = 0
        self.reassigned = 0
        self.snapshots_loaded = 0


def kraft_history_of(
    seed: int, steps: int, *, elr: bool = True, tells: bool = False, make: NodeFactory = real_node
) -> KRaftHistory:
    """Run a seed; the same seed gives the same history.

    Args:
        seed: chooses the cluster, its faults, and everything that happens.
        steps: how many actions.
        elr: whether eligible leader replicas are enabled.
        tells: whether to keep what each step did, in words.
        make: makes the nodes of the quorum.
    """
    with collections_off():
        return _run(seed, steps, elr=elr, tells=tells, make=make)


def _run(seed: int, steps: int, *, elr: bool, tells: bool, make: NodeFactory) -> KRaftHistory:
    history = KRaftHistory(seed)
    dice = Dice(seed)
    try:
        world = _staged(dice, elr=elr, make=make)
    except Violation as broken:
        history.violation = broken
        return history
    lots = Lots([weight if dice.happens(0.7) else weight / 5 for _, weight in ACTIONS])
    history.play(steps, partial(_act, world, dice, lots), partial(_heal, world), tells=tells)
    history.acknowledged = sum(one.acknowledged for one in world.clients.values())
    history.elections, history.inputs = world.quorum.elections, world.inputs
    history.reassigned, history.snapshots_loaded = world.checker.reassigned, world.snapshots_loaded
    history.images, history.visible_losses = len(world.checker.images), world.checker.lost
    return history


def _staged(dice: Dice, *, elr: bool, make: NodeFactory) -> KRaftWorld:
    """Return a cluster that is up, with its topic."""
    controllers = (1, 3, 3)[dice.below(3)]
    timers = QuorumConfig(
        "",
        ReplicaKey(0),
        election_timeout_ms=100,
        fetch_timeout_ms=500,
        election_backoff_max_ms=100,
        append_linger_ms=(0, 5)[dice.below(2)],
        request_timeout_ms=500,
        retry_backoff_ms=20,
    )
    faults = Faults(longest_delay_ms=3, longest_write_ms=1)
    quorum = KRaftQuorum(dice, controllers, BROKERS, dice.below(2), timers, faults, make)
    world = KRaftWorld(dice, quorum, controllers, 1 + dice.below(2), elr=elr)
    for node_id in world.controller_ids:
        world.start_controller(node_id)
    world.run(_START_MS)
    for broker_id in world.nodes:
        world.start_broker(broker_id)
    world.run(_START_MS)
    world.create_topic()
    world.run(_START_MS)
    faults.longest_write_ms = (0, 5, 40)[dice.below(3)]
    faults.longest_delay_ms = world.longest_ms = (3, 10, 60)[dice.below(3)]
    faults.loss = world.loss = (0.0, 0.01, 0.1)[dice.below(3)]
    return world


def _act(world: KRaftWorld, dice: Dice, lots: Lots) -> str:
    dice.begin()
    for _ in range(_ATTEMPTS):
        words = ACTIONS[lots.place(dice.below(lots.end))][0](world, dice)
        if words:
            return words
    return ""


def _heal(world: KRaftWorld) -> None:
    """End the faults; then each partition has a leader, all replicas in its ISR, and takes records (K2)."""
    faults = world.quorum.faults
    faults.partitioned.clear()
    world.severed.clear()
    faults.loss = world.loss = 0.0
    faults.longest_delay_ms, faults.longest_write_ms, world.longest_ms = 3, 1, 3
    for node_id in world.controller_ids:
        if node_id not in world.controllers:
            world.start_controller(node_id)
    for _ in range(_REST_ROUNDS):
        for broker in world.nodes.values():
            if not broker.is_running:
                world.start_broker(broker.broker_id)
            elif broker.is_paused:
                world.pause_broker(broker.broker_id, is_paused=False)
        _assign_all(world)
        world.run(_REST_MS)
        if _is_whole(world) and _takes_records(world):
            world.checker.all_kept(lambda _: True)
            return
    topic = world.checker.newest.topic_named("orders")
    raise Violation("K2", f"after the faults the partitions are {None if topic is None else dict(topic.partitions)}")


def _assign_all(world: KRaftWorld) -> None:
    """Ask for all brokers as replicas of each partition that has fewer; a reassignment in progress ends by itself."""
    topic = world.checker.newest.topic_named("orders")
    for at in world.partitions:
        state = None if topic is None else topic.partitions.get(at.partition)
        if state is not None and not state.is_reassigning and len(state.replicas) < BROKERS:
            others = [one for one in world.nodes if one not in state.replicas]
            world.reassign(at, (*state.replicas, *others))


def _is_whole(world: KRaftWorld) -> bool:
    topic = world.checker.newest.topic_named("orders")
    states = [] if topic is None else topic.partitions.values()
    return topic is not None and all(
        one.has_leader and len(one.isr) == BROKERS and not one.is_reassigning for one in states
    )


def _takes_records(world: KRaftWorld) -> bool:
    """Write to each partition; return whether all were acknowledged and fetched by all replicas."""
    before = {at: one.acknowledged for at, one in world.clients.items()}
    for broker, at in list(world.leading()):
        world.produce(broker, at, 1)
    world.run(_REST_MS)
    return _is_whole(world) and all(one.acknowledged > before[at] for at, one in world.clients.items())
