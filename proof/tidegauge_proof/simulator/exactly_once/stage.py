"""The cluster, the coordinators and the clients of a history of consume, transform, produce; and their return to rest.

The cluster is ``simulation``'s: the real replication core, the controller's real decisions, one or two log
directories. It has the partitions of both internal topics and of the output, each on all brokers, and both real
coordinators run on every broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_proof.simulator.actions import swarm_of
from tidegauge_proof.simulator.checker import Checker
from tidegauge_proof.simulator.coordinator_history import History
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.exactly_once.clients import OUTPUTS, Copier, Reader
from tidegauge_proof.simulator.exactly_once.cluster import NAMES, Cluster
from tidegauge_proof.simulator.exactly_once.joint_checker import JointChecker
from tidegauge_proof.simulator.simulation import end_faults, mend, rest, right_wall_clocks
from tidegauge_proof.simulator.swarm import MUST_SURVIVE, Swarm
from tidegauge_proof.simulator.world import World

TIMEOUTS_MS = (5_000, 10_000, 20_000)
"""Of transactions: half, once and twice a member's session timeout, the last also its rebalance timeout."""
_LAG_MS = 2000
_REST_ROUNDS = 60
_REST_MS = 1000


class JointHistory(History):
    """The result of a seed.

    Attributes:
        transactions: how many were begun; ``committed`` and ``aborted``: whose end was acknowledged.
        copied: how many records of the input are committed as processed.
        reads: how many reads of committed records gave something.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.transactions = 0
        self.committed = 0
        self.aborted = 0
        self.copied = 0
        self.reads = 0


@dataclass(slots=True)
class Stage:
    """All that a history has."""

    seed: int
    swarm: Swarm
    world: World
    dice: Dice
    cluster: Cluster
    checker: JointChecker
    copiers: list[Copier]
    readers: list[Reader]


def staged(seed: int, mode: str, swarm: Swarm | None = None) -> Stage:
    """Return a cluster and its clients, before the first step.

    Args:
        seed: of the dice; it also says how long transactions may take, and how many clients there are.
        mode: of the network.
        swarm: the settings of the cluster; None: the seed's.
    """
    swarm = swarm or swarm_of(seed, "kip-320", MUST_SURVIVE)
    settings = CoreSettings(replica_lag_time_max_ms=_LAG_MS, replica_fetch_backoff_ms=100, emits_diagnostics=False)
    checkers = [Checker(swarm.min_insync_replicas) for _ in NAMES]
    for at, one in zip(NAMES, checkers, strict=True):
        one.at = at
    rules = TopicRules(min_insync_replicas=swarm.min_insync_replicas)
    world = World(swarm.replicas, settings, rules, *checkers, directories=swarm.directories, names=NAMES)
    world.set_wall_clocks(seed)
    for broker in world.brokers.values():
        broker.flushes = swarm.flushes
        for place, replica in enumerate(broker.replicas.values()):
            replica.log.snapshot_every = (0, 3, 7, 12)[(seed + broker.broker_id + place) % 4]
    dice = Dice(seed)
    checker = JointChecker(checkers[0], NAMES)
    timeout_ms = TIMEOUTS_MS[seed % len(TIMEOUTS_MS)]
    cluster = Cluster(world, checker, dice, mode, timeout_ms)
    copiers = [
        Copier(f"c{number}", timeout_ms, dice, f"i{number}" if (seed + number) % 4 == 0 else None)
        for number in range(2 + seed % 2)
    ]
    return Stage(seed, swarm, world, dice, cluster, checker, copiers, [Reader(at) for at in OUTPUTS])


def judge(history: JointHistory, stage: Stage, *, judges: bool) -> None:
    """Heal the cluster, and check its end; see ``JointChecker.rests``."""
    heal(stage)
    stage.checker.rests(stage.copiers, stage.readers, judges=judges)
    history.copied = sum(stage.checker.offsets.committed_positions().values())


def count(history: JointHistory, stage: Stage) -> None:
    """Write down what came of a history."""
    checker = stage.checker
    stories = [story for copier in stage.copiers for story in copier.stories]
    history.transactions = len(stories)
    history.committed = sum(story.is_acknowledged and story.end == 1 for story in stories)
    history.aborted = sum(story.is_acknowledged and story.end == 0 for story in stories)
    history.reads = sum(len(reader.reads) for reader in stage.readers)
    history.loads = checker.loads + checker.offsets.loads
    history.died_with = checker.died_with
    cluster = stage.cluster
    history.inputs = stage.world.inputs + cluster.transactions.inputs + cluster.groups.inputs


def heal(stage: Stage) -> None:
    """End the faults and the clients; every transaction must come to its end by its timeout."""
    world, cluster = stage.world, stage.cluster
    cluster.network.is_calm = True
    for copier in stage.copiers:
        copier.is_closing = True
        copier.in_flight = None
        copier.member.in_flight.clear()
    end_faults(world)
    right_wall_clocks(world)
    cluster.settle()
    for internal in [*cluster.in_flight]:
        internal.finish(None)  # the broker that had it may be dead, and its connections closed
    cluster.settle()
    mend(world)
    cluster.settle()
    for _ in range(_REST_ROUNDS):
        _rest_once(stage)  # first: a broker that has just started does not know that it leads, and has no transactions
        _deliver_all(stage)
        if _is_over(stage):
            break
    _deliver_all(stage)
    rest(world)
    cluster.settle()
    _deliver_all(stage)


def _rest_once(stage: Stage) -> None:
    """Let time pass, controllers decide and followers fetch, once."""
    rest(stage.world)
    stage.world.pass_time(_REST_MS)
    stage.cluster.settle()
    stage.cluster.step_timers()


def _is_over(stage: Stage) -> bool:
    cluster = stage.cluster
    process = cluster.transactions.processes.get(cluster.transactions.partition.state_now.leader)
    if process is None or process.load is not None or cluster.in_flight or cluster.network.messages:
        return False
    if cluster.groups.loading():
        return False
    views = process.coordinator.transaction_views()
    return all(view.pending_state is None and view.state.value.startswith(("Empty", "Complete")) for view in views)


def _deliver_all(stage: Stage) -> None:
    """Deliver everything in flight; followers fetch until all is committed."""
    world, cluster = stage.world, stage.cluster
    for _ in range(8):
        for broker_id in world.brokers:
            world.whole_round(broker_id)
            cluster.settle()
        for one in (cluster.transactions, cluster.groups):
            while loading := one.loading():
                one.go_on_loading(loading[0])
        cluster.settle()
        cluster.network.deliver_all()
        cluster.settle()
