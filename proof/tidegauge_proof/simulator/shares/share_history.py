"""One history of a share group from one seed: random steps under faults, then peace, in which each record is done.

In peace members accept everything; an acknowledged record must not come again.
"""

from __future__ import annotations

from functools import partial

from tidegauge.collections_off import collections_off
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import Wanted
from tidegauge_broker.share.partition import PartitionState
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.coordinator_history import History, acted, staged
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.shares.leaders import LOCK_MS
from tidegauge_proof.simulator.shares.share_actions import SHARE_ACTIONS, Members, deliver
from tidegauge_proof.simulator.shares.share_checker import ShareChecker
from tidegauge_proof.simulator.shares.share_members import ACCEPT
from tidegauge_proof.simulator.shares.share_world import ShareWorld
from tidegauge_proof.simulator.simulation import end_faults, rest, right_wall_clocks
from tidegauge_proof.simulator.world import World

_CLUSTER_SHARE = 0.45
"""The part of the steps that happen to the cluster."""
_REST_ROUNDS = 150


class ShareHistory(History):
    """The result of a seed.

    Attributes:
        deliveries: how many records were given to members.
        again: how many of them had been given before.
        done: how many records' acknowledgements were acknowledged.
        leaders: how many leaders the partition with the records had.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.deliveries = 0
        self.again = 0
        self.done = 0
        self.leaders = 0


def share_history_of(seed: int, steps: int, *, tells: bool = False) -> ShareHistory:
    """Run a seed; the same seed gives the same history. ``tells`` keeps what each step did."""
    with collections_off():
        return _run(seed, steps, tells=tells)


def _run(seed: int, steps: int, *, tells: bool) -> ShareHistory:
    history = ShareHistory(seed)
    dice = Dice(seed)
    stage = staged(seed)
    world = stage.world
    world.tells = tells
    checker = ShareChecker(stage.partition)
    cluster = ShareWorld(world, checker, (2, 5, 500)[seed % 3])
    members = Members(2 + seed % 2)
    acts = acted(stage, dice, members, cluster, SHARE_ACTIONS, _CLUSTER_SHARE)

    def step() -> str:
        words = next(acts)
        cluster.forget_the_dead()
        return words

    history.play(steps, step, partial(_heal, world, cluster, members), tells=tells)
    history.deliveries, history.again, history.done = checker.deliveries, checker.again, len(checker.done)
    history.leaders, history.loads, history.died_with = cluster.leader_epoch, checker.loads, checker.died_with
    history.inputs = world.inputs + cluster.inputs
    return history


def _heal(world: World, cluster: ShareWorld, members: Members) -> None:
    """End the faults; a leader delivers the remaining records, members accept them, and nothing may be left open.

    The members' processes restart, and the leader does not hear of that: the locks of what they had must end.
    """
    end_faults(world)
    right_wall_clocks(world)
    rest(world)
    cluster.run()
    cluster.forget_the_dead()
    for member in members.all:
        member.close()
    cluster.member_requests.clear()
    if cluster.leader_id < 0:
        cluster.elect(min(world.brokers))
    for broker_id in list(cluster.leads):
        cluster.resign(broker_id)
    cluster.produce(1)
    for _ in range(_REST_ROUNDS):
        for member in members.all if cluster.is_initialized else ():
            if member.in_flight is None:
                _go_on(cluster, members, member.name)
        _deliver_all(cluster)
        if _is_at_the_end(cluster):
            break
        world.pass_time(LOCK_MS // 8)
        cluster.run()
        cluster.step_timers()
        cluster.expire_locks()
    else:
        leader = cluster.hosted.get(cluster.leader_id)
        window = None if leader is None else leader.core.window
        at = "no leader" if window is None else f"start {window.start_offset}, {window.complete_count} done"
        raise Violation("S6", f"the members do not come to the end {cluster.end_offset}: {at}")
    _deliver_all(cluster)
    cluster.checker.at_rest(cluster.end_offset)


def _go_on(cluster: ShareWorld, members: Members, name: str) -> None:
    """Have a member accept what it has, or else fetch, at the leader."""
    member = next(one for one in members.all if one.name == name)
    member.broker_id = cluster.leader_id
    offsets = sorted(member.has)
    member.has.clear()
    wanted = None if offsets else Wanted(10, 10)
    cluster.member_requests.append(member.send(wanted, [Acknowledgement(one, one, (ACCEPT,)) for one in offsets]))


def _is_at_the_end(cluster: ShareWorld) -> bool:
    """Return whether each record is done, and nothing is in flight."""
    leader = cluster.hosted.get(cluster.leader_id)
    if leader is None or leader.core.state is not PartitionState.ACTIVE or not leader.is_quiet:
        return False
    window = leader.core.window
    return window.start_offset + window.complete_count >= cluster.end_offset


def _deliver_all(cluster: ShareWorld) -> None:
    """Deliver everything in flight; followers fetch until all is committed."""
    for _ in range(8):
        cluster.replicate()
        for request in [one for one in cluster.member_requests if not one.has_arrived]:
            cluster.arrive_of_member(request)
        for request in [one for one in cluster.member_requests if one.error is not None]:
            deliver(cluster, request)
        calls, cluster.unsent = cluster.unsent, []
        for call in calls:
            call.attempts += 1
            cluster.send(call, cluster.world.state_now.leader)
        for call in cluster.lost_calls():
            cluster.call_failed(call)
        cluster.arrive_all()
        responses, cluster.responses = cluster.responses, []
        for response in responses:
            cluster.take_result(response.call, response.result)
