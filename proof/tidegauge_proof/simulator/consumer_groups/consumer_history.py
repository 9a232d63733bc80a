"""One simulated history of a consumer group: a cluster that fails, consumers that restart, a network that loses.

The cluster is ``simulation``'s: the real replication core, the controller's real decisions, the same faults. Its
one partition is __consumer_offsets; on every broker runs the real group coordinator. After the faults everything is
delivered, the consumers come to own all partitions, and acknowledged commits must be there.
"""

from __future__ import annotations

from functools import partial

from tidegauge.collections_off import collections_off
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.consumer_groups.consumer_actions import CONSUMER_ACTIONS, Consumers, deliver
from tidegauge_proof.simulator.consumer_groups.consumer_checker import ConsumerChecker
from tidegauge_proof.simulator.consumer_groups.consumer_world import ConsumerWorld
from tidegauge_proof.simulator.consumer_groups.consumers import GROUP, PARTITIONS
from tidegauge_proof.simulator.coordinator_history import History, acted, staged
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.simulation import end_faults, rest, right_wall_clocks
from tidegauge_proof.simulator.world import World

_CLUSTER_SHARE = 0.4
"""The part of the steps that happen to the cluster."""
_REST_ROUNDS = 60
_REST_MS = 1000


class ConsumerHistory(History):
    """The result of a seed.

    Attributes:
        commits: how many partitions' commits were acknowledged.
        epochs: the highest group epoch.
        moves: how often a consumer began to read partitions.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.commits = 0
        self.epochs = 0
        self.moves = 0


def consumer_history_of(seed: int, steps: int, *, tells: bool = False) -> ConsumerHistory:
    """Run a seed; the same seed gives the same history. ``tells`` keeps what each step did."""
    with collections_off():
        return _run(seed, steps, tells=tells)


def _run(seed: int, steps: int, *, tells: bool) -> ConsumerHistory:
    history = ConsumerHistory(seed)
    dice = Dice(seed)
    stage = staged(seed)
    world = stage.world
    world.tells = tells
    checker = ConsumerChecker(stage.partition)
    cluster = ConsumerWorld(world, checker)
    consumers = Consumers(2 + seed % 3, seed % 2, min(world.brokers))
    checker.consumers = consumers.all
    acts = acted(stage, dice, consumers, cluster, CONSUMER_ACTIONS, _CLUSTER_SHARE)
    history.play(steps, partial(next, acts), partial(_heal, world, cluster, consumers), tells=tells)
    history.commits, history.epochs = checker.commits, checker.epochs
    history.loads, history.moves = checker.loads, checker.moves
    history.died_with = checker.died_with
    history.inputs = world.inputs + cluster.inputs
    return history


def _heal(world: World, cluster: ConsumerWorld, consumers: Consumers) -> None:
    """End the faults; the consumers must come to own all partitions, and nothing may be left open."""
    end_faults(world)
    right_wall_clocks(world)
    rest(world)
    cluster.run()
    for consumer in consumers.all:
        consumer.give_up_all()
    for _ in range(_REST_ROUNDS):
        leader = world.state_now.leader
        for consumer in consumers.all:
            consumer.broker = leader
            if consumer.is_over:
                consumer.restart()
                cluster.checker.has_dropped(consumer)
            consumer.revoke()
            request = consumer.heartbeat()
            if request is not None:
                call = consumers.call(consumer, request)
                consumer.in_flight["heartbeat"] = call
                cluster.send(call, leader)
        _deliver_all(cluster)
        if _has_settled(cluster, consumers):
            break
        world.pass_time(_REST_MS)
        cluster.run()
        cluster.step_timers()
    else:
        view = cluster.processes[world.state_now.leader].coordinator.consumer_group_view(GROUP)
        raise Violation("K6", f"the consumers do not come to own all partitions: {view}")
    cluster.checker.at_rest(cluster)


def _has_settled(cluster: ConsumerWorld, consumers: Consumers) -> bool:
    """Return whether exactly the consumers are members, with one reader for each partition."""
    view = cluster.processes[cluster.world.state_now.leader].coordinator.consumer_group_view(GROUP)
    if view is None or {one.member_id for one in view.members} != {one.member_id for one in consumers.all}:
        return False
    reads = sorted(number for one in consumers.all for number in one.reads)
    return all(one.is_settled for one in consumers.all) and reads == list(range(PARTITIONS))


def _deliver_all(cluster: ConsumerWorld) -> None:
    """Deliver everything in flight, once; followers fetch until all is committed."""
    for _ in range(8):
        cluster.replicate()
        cluster.arrive_all()
        responses, cluster.responses = cluster.responses, []
        for response in responses:
            deliver(cluster, response)
