"""One simulated history of a group: a cluster that fails, members that restart, a network that loses and repeats.

The cluster is ``simulation``'s: the real replication core, the controller's real decisions, the same faults. Its
one partition is __consumer_offsets; on every broker runs the real group coordinator. After the faults everything is
delivered, the members come to rest, and acknowledged commits must be there.
"""

from __future__ import annotations

from functools import partial

from tidegauge.collections_off import collections_off
from tidegauge.groups import GroupState
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.coordinator_history import History, acted, staged
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.groups.group_actions import GROUP_ACTIONS, ODD_ACTIONS, Clients, deliver
from tidegauge_proof.simulator.groups.group_checker import GroupChecker
from tidegauge_proof.simulator.groups.group_world import GroupWorld
from tidegauge_proof.simulator.groups.members import GROUP, SESSION_MS
from tidegauge_proof.simulator.simulation import end_faults, rest, right_wall_clocks
from tidegauge_proof.simulator.world import World

_CLUSTER_SHARE = 0.4
"""The part of the steps that happen to the cluster."""
_REST_ROUNDS = 120
_REST_MS = 1000
_ODD = 7


class GroupHistory(History):
    """The result of a seed.

    Attributes:
        commits: how many partitions' commits were acknowledged.
        generations: the highest generation.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.commits = 0
        self.generations = 0


def group_history_of(seed: int, steps: int, *, tells: bool = False) -> GroupHistory:
    """Run a seed; the same seed gives the same history. ``tells`` keeps what each step did."""
    with collections_off():
        return _run(seed, steps, tells=tells)


def is_odd(seed: int) -> bool:
    """Return whether the members of a seed have odd timeouts."""
    return seed % 8 == _ODD


def _run(seed: int, steps: int, *, tells: bool) -> GroupHistory:
    history = GroupHistory(seed)
    dice = Dice(seed)
    stage = staged(seed)
    world = stage.world
    world.tells = tells
    checker = GroupChecker(stage.partition)
    cluster = GroupWorld(world, checker)
    clients = Clients(2 + seed % 3, seed % 2 + seed % 3 // 2, min(world.brokers))
    checker.has_odd_timeouts = is_odd(seed)
    if is_odd(seed):
        clients.begin_oddly()
    actions = ODD_ACTIONS if is_odd(seed) else GROUP_ACTIONS
    acts = acted(stage, dice, clients, cluster, actions, _CLUSTER_SHARE)
    history.play(steps, partial(next, acts), partial(_heal, world, cluster, clients), tells=tells)
    history.commits, history.generations, history.loads = checker.commits, checker.generations, checker.loads
    history.died_with = checker.died_with
    history.inputs = world.inputs + cluster.inputs
    return history


def _heal(world: World, cluster: GroupWorld, clients: Clients) -> None:
    """End the faults; every member must get an assignment, and nothing may be left open."""
    end_faults(world)
    right_wall_clocks(world)
    rest(world)
    cluster.run()
    for member in clients.members:
        member.in_flight.clear()
        if member.is_odd:
            member.behave()
            member.restart()
    calm = 0
    for _ in range(_REST_ROUNDS):
        _deliver_all(cluster)
        leader = world.state_now.leader
        for member in clients.members:
            member.broker = leader
            if member.is_fenced:
                member.restart()
            while (request := member.next_request() or member.heartbeat()) is not None:
                call = clients.call(member, request[1])
                member.in_flight[request[0]] = call
                cluster.send(call, leader)
        _deliver_all(cluster)
        calm = calm + 1 if all(member.is_stable for member in clients.members) else 0
        if calm > 3 * SESSION_MS // _REST_MS:
            break
        world.pass_time(_REST_MS)
        cluster.run()
        cluster.step_timers()
    else:
        view = cluster.processes[world.state_now.leader].coordinator.group_view(GROUP)
        raise Violation("G9", f"the members do not come to rest: {view}")
    view = cluster.processes[world.state_now.leader].coordinator.group_view(GROUP)
    if view is None or view.state is not GroupState.STABLE:
        raise Violation("G9", f"the group is not Stable at the end: {view}")
    cluster.checker.at_rest(cluster)


def _deliver_all(cluster: GroupWorld) -> None:
    """Deliver everything in flight, once; followers fetch until all is committed."""
    for _ in range(8):
        cluster.replicate()
        cluster.arrive_all()
        responses, cluster.responses = cluster.responses, []
        for response in responses:
            deliver(response.call, cluster, response)
