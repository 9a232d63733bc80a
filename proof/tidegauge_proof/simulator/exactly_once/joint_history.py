"""One simulated history of consume, transform, produce: copiers and readers on a cluster that fails.

The cluster is that of ``simulation``: the real replication core, the controller's real decisions, the same faults, one
or two log directories. It has the partitions of both internal topics and of the output, each on all brokers; both real
coordinators run on every broker. After the faults everything is delivered, the timeouts pass, and what was acknowledged
must be so. Requests that are late by more than their sender's patience are a mode (``network``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegauge.collections_off import collections_off
from tidegauge.groups import OffsetCommit, OffsetToCommit
from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_proof.simulator.actions import (
    ACTIONS,
    DISK_ACTIONS,
    MUST_SURVIVE,
    Swarm,
    bounds,
    consume,
    damage_batch,
    pass_time,
    produce,
    produce_idempotently,
    swarm_of,
)
from tidegauge_proof.simulator.acts import Act, words_of
from tidegauge_proof.simulator.checker import Checker
from tidegauge_proof.simulator.coordinator_history import History
from tidegauge_proof.simulator.coordinator_world import Process
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.exactly_once.clients import OUTPUTS, SIMPLE, SIMPLE_GROUP, Copier, Reader
from tidegauge_proof.simulator.exactly_once.cluster import NAMES, OFFSETS, TRANSACTIONS, Call, Caller, Cluster
from tidegauge_proof.simulator.exactly_once.joint_checker import JointChecker
from tidegauge_proof.simulator.exactly_once.network import LATE_ENDS, TIMELY
from tidegauge_proof.simulator.simulation import end_faults, rest
from tidegauge_proof.simulator.world import World

TIMEOUTS_MS = (5_000, 10_000, 20_000)
"""Of transactions: half, once and twice a member's session timeout, the last also its rebalance timeout."""
_LAG_MS = 2000
_CLUSTER_SHARE = 0.12
_FAULT_WEIGHTS = (0.01, 0.03, 0.1)
"""Faults are that much as frequent as without clients, by seed."""
_ATTEMPTS = 30
_REST_ROUNDS = 60
_REST_MS = 1000
_NOT_HERE = (produce, produce_idempotently, consume, pass_time, damage_batch)


@dataclass(slots=True)
class JointHistory(History):
    """What came of a seed.

    Attributes:
        transactions: how many were begun; ``committed`` and ``aborted``: whose end was acknowledged.
        copied: how many records of the input are committed as processed.
        reads: how many reads of committed records gave something.
    """

    transactions: int = 0
    committed: int = 0
    aborted: int = 0
    copied: int = 0
    reads: int = 0


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


Action = Callable[[Stage], str | None]
"""Does it, and returns what was done in words; None where there was nothing to do."""


# Actions


def copier_acts(stage: Stage) -> str | None:
    """Have a copier send what comes next."""
    copier = stage.dice.choose(stage.copiers)
    if copier.is_paused or copier.in_flight is not None:
        return None
    ask = copier.next_ask()
    if ask is None:
        return None
    if ask.to == "leader":
        broker_id = stage.cluster.leader_of(ask.request.at)
        call = copier.in_flight = object()
        stage.cluster.ask_leader(
            broker_id,
            ask.request,
            lambda error: _take(copier, call, error),
            lambda: copier.in_flight is call,
        )
        return f"{copier.name} writes to {ask.request.at} at {broker_id}"
    if copier.brokers[ask.to] < 0:
        copier.brokers[ask.to] = stage.cluster.leader_of(TRANSACTIONS if ask.to == "transaction" else OFFSETS)
    sent = Call(copier, ask.request, lambda result: _take(copier, sent, result), lambda: copier.in_flight is sent)
    copier.in_flight = sent
    stage.cluster.ask_coordinator(ask.to, copier.brokers[ask.to], sent)
    return f"{copier.name} sends {type(ask.request).__name__} to {copier.brokers[ask.to]}"


def _take(copier: Copier, call: object, result: Any) -> None:
    if copier.in_flight is call:
        copier.take(result)


def member_acts(stage: Stage) -> str | None:
    """Have a copier send what brings it closer to an assignment, or a heartbeat."""
    copier = stage.dice.choose(stage.copiers)
    member = copier.member
    if copier.is_paused or (copier.is_closing and not member.is_stable):
        return None
    request = member.next_request() or member.heartbeat()
    if request is None:
        return None
    kind, message = request
    if member.broker < 0:
        member.broker = stage.cluster.leader_of(OFFSETS)
    call = Call(
        copier, message, lambda result: _take_of_member(copier, kind, call, result), lambda: _waits(copier, call)
    )
    member.in_flight[kind] = call  # type: ignore[assignment]
    stage.cluster.ask_coordinator("group", member.broker, call)
    return f"{copier.name} sends {type(message).__name__} to {member.broker}"


def _waits(copier: Copier, call: object) -> bool:
    return any(one is call for one in copier.member.in_flight.values())


def _take_of_member(copier: Copier, kind: str, call: object, result: Any) -> None:
    if copier.member.in_flight.get(kind) is call:
        del copier.member.in_flight[kind]
        copier.member.responded(kind, result)


def simple_commit(stage: Stage) -> str | None:
    """Commit an offset outside of any transaction, which may meet a transactional one of the same partition."""
    number = stage.dice.below(1000)
    request = OffsetCommit(SIMPLE_GROUP, (OffsetToCommit(SIMPLE, 1000 + number),))
    call = Call(Caller("simple"), request, lambda _: None, lambda: True)
    stage.cluster.ask_coordinator("group", stage.cluster.leader_of(OFFSETS), call)
    return "a simple consumer commits"


def message_arrives(stage: Stage) -> str | None:
    """Deliver a message."""
    return stage.cluster.network.deliver_one()


def late_message_arrives(stage: Stage) -> str | None:
    """Deliver a copy of a request late."""
    return stage.cluster.network.deliver_late()


def copier_gives_up(stage: Stage) -> str | None:
    """Have a copier give a request up, which it will send again."""
    copier = stage.dice.choose(stage.copiers)
    if copier.is_paused:
        return None
    if stage.dice.happens(0.3) and copier.member.in_flight:
        del copier.member.in_flight[stage.dice.choose(sorted(copier.member.in_flight))]
        copier.member.broker = -1
        return f"{copier.name} gives up a request of its membership"
    if copier.in_flight is None:
        return None
    copier.take(None)
    if stage.dice.happens(0.5):
        copier.brokers = dict.fromkeys(copier.brokers, -1)
    return f"{copier.name} gives up"


def copier_restarts(stage: Stage) -> str | None:
    """Kill a copier's process and start another one."""
    copier = stage.dice.choose(stage.copiers)
    copier.restart()
    copier.is_paused = False
    return f"{copier.name} restarts"


def copier_pauses(stage: Stage) -> str | None:
    """Pause a copier, or let it go on: it may be a zombie by then."""
    copier = stage.dice.choose(stage.copiers)
    if not copier.is_paused and stage.dice.happens(0.7):
        return None
    copier.is_paused = not copier.is_paused
    return f"{copier.name} is {'paused' if copier.is_paused else 'resumed'}"


def connection_breaks(stage: Stage) -> str | None:
    """Break the connection of a request from one broker to another."""
    requests = stage.cluster.in_flight
    if not requests:
        return None
    internal = stage.dice.choose(requests)
    internal.finish(None)
    return f"no response to the {internal.words}"


def reads(stage: Stage) -> str | None:
    """Let a consumer of committed records read."""
    reader = stage.dice.choose(stage.readers)
    return stage.cluster.read(reader, stage.cluster.leader_of(reader.at))


def load_goes_on(stage: Stage) -> str | None:
    """Continue a load."""
    found: list[tuple[Any, Process[Any]]] = [
        (one, process) for one in (stage.cluster.transactions, stage.cluster.groups) for process in one.loading()
    ]
    if not found:
        return None
    coordinators, process = stage.dice.choose(found)
    coordinators.go_on_loading(process)
    return f"broker {process.broker.broker_id} reads on"


def timers_run(stage: Stage) -> str | None:
    """Run the timers of the coordinators that are due."""
    return "timers run" if stage.cluster.step_timers() else None


def damage_output(stage: Stage) -> str | None:
    """Damage a batch of the output in the log of a running broker; what coordinators load stays sound."""
    if stage.world.brokers[min(stage.world.brokers)].directories < 2:
        return None
    partition = stage.cluster.partitions[stage.dice.choose(OUTPUTS)]
    broker_id = stage.dice.choose(list(partition.brokers))
    replica = partition.brokers[broker_id]
    if replica.damaged is not None or not replica.log.log_end_offset:
        return None
    offset = replica.damaged = replica.log.whole_batches_below(stage.dice.below(replica.log.log_end_offset))
    return f"offset {offset} of {partition.at} is damaged on broker {broker_id}"


def brokers_catch_up(stage: Stage) -> str | None:
    """Deliver what the controller has decided, and let every follower fetch, where links and processes allow."""
    world = stage.world
    if world.elected is None or world.elected in world.paused or world.elected not in world.controllers:
        return None
    world.decide_all()
    traffic = world.traffic
    for exchange in [*traffic.requests]:
        leader = exchange.chosen.leader
        if leader not in world.paused and not world.is_cut(exchange.follower.broker_id, leader):
            traffic.requests.remove(exchange)
            world.arrive(exchange, wait_ms=0)
    for exchange in [*traffic.responses]:
        follower = exchange.follower.broker_id
        if follower not in world.paused and not world.is_cut(follower, exchange.chosen.leader):
            traffic.responses.remove(exchange)
            world.deliver_response(exchange)
    for broker_id in world.brokers:
        if world.is_up(broker_id) and not world.is_cut(world.elected or 0, broker_id):
            world.deliver_all(broker_id)
            world.whole_round(broker_id)
            stage.cluster.settle()
    return "brokers catch up"


def time_passes(stage: Stage) -> str | None:
    """Let time pass for all."""
    ms = (50, 200, 500, 1000)[stage.dice.below(4)]
    stage.world.pass_time(ms)
    return f"{ms} ms pass"


ACTIONS_HERE: tuple[tuple[Action, float], ...] = (
    (copier_acts, 70),
    (member_acts, 14),
    (message_arrives, 130),
    (late_message_arrives, 3),
    (reads, 8),
    (brokers_catch_up, 7),
    (time_passes, 1.5),
    (load_goes_on, 14),
    (timers_run, 30),
    (connection_breaks, 0.3),
    (simple_commit, 0.3),
    (copier_gives_up, 0.2),
    (copier_restarts, 0.03),
    (copier_pauses, 0.12),
    (damage_output, 0.03),
)


# Histories


def joint_history_of(
    seed: int, steps: int, mode: str = TIMELY, *, judges: bool | None = None, tells: bool = False
) -> JointHistory:
    """Run a seed; the same seed gives the same history.

    Args:
        seed: of the dice.
        steps: how many to do before everything is healed.
        mode: which requests may arrive that their sender has given up (``network``).
        judges: whether T11 and T13 are asked for; None: unless ends may be late.
        tells: whether to keep what each step did.
    """
    with collections_off():
        return _run(seed, steps, mode, judges=mode != LATE_ENDS if judges is None else judges, tells=tells)


def staged(seed: int, mode: str) -> Stage:
    """Return the cluster of a seed and its clients, before the first step."""
    swarm = swarm_of(seed, "kip-320", MUST_SURVIVE)
    settings = CoreSettings(replica_lag_time_max_ms=_LAG_MS, replica_fetch_backoff_ms=100, emits_diagnostics=False)
    checkers = [Checker(swarm.min_insync_replicas) for _ in NAMES]
    for at, one in zip(NAMES, checkers, strict=True):
        one.at = at
    rules = TopicRules(min_insync_replicas=swarm.min_insync_replicas)
    world = World(swarm.replicas, settings, rules, *checkers, directories=swarm.directories, names=NAMES)
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


def _run(seed: int, steps: int, mode: str, *, judges: bool, tells: bool) -> JointHistory:
    history = JointHistory(seed)
    stage = staged(seed, mode)
    checker = stage.checker

    def heal() -> None:
        _heal(stage)
        checker.rests(stage.copiers, stage.readers, judges=judges)
        history.copied = sum(checker.offsets.committed_positions().values())

    history.play(steps, _chooser(stage), heal, tells=tells)
    stories = [story for copier in stage.copiers for story in copier.stories]
    history.transactions = len(stories)
    history.committed = sum(story.is_acknowledged and story.end == 1 for story in stories)
    history.aborted = sum(story.is_acknowledged and story.end == 0 for story in stories)
    history.reads = sum(len(reader.reads) for reader in stage.readers)
    history.loads = checker.loads + checker.offsets.loads
    history.died_with = checker.died_with
    return history


def _chooser(stage: Stage) -> Callable[[], str]:
    """Return what does one step, and says what it did; empty where no attempt found anything to do."""
    of_cluster = (*ACTIONS, *DISK_ACTIONS) if stage.swarm.directories > 1 else ACTIONS
    fault_weight = _FAULT_WEIGHTS[stage.seed // 3 % len(_FAULT_WEIGHTS)]
    rising = bounds(
        [
            0.0 if action in _NOT_HERE else weight * (fault_weight if is_fault else 1)
            for (action, _, is_fault), weight in zip(of_cluster, stage.swarm.weights, strict=True)
        ]
    )
    rising_here = bounds([weight for _, weight in ACTIONS_HERE])
    dice, world, cluster = stage.dice, stage.world, stage.cluster

    def step() -> str:
        dice.begin()
        for _ in range(_ATTEMPTS):
            if dice.happens(_CLUSTER_SHARE):
                done: Act | None = of_cluster[bisect_right(rising, dice.below(rising[-1]))][0](world, dice, stage.swarm)
                cluster.settle()
                words = words_of(done) if done is not None else ""
            else:
                words = ACTIONS_HERE[bisect_right(rising_here, dice.below(rising_here[-1]))][0](stage) or ""
                cluster.settle()
            if words:
                return words
        return ""

    return step


def _heal(stage: Stage) -> None:
    """End the faults and the clients; every transaction must come to its end by its timeout."""
    world, cluster = stage.world, stage.cluster
    cluster.network.is_calm = True
    for copier in stage.copiers:
        copier.is_closing = True
        copier.in_flight = None
        copier.member.in_flight.clear()
    end_faults(world)
    cluster.settle()
    for broker_id, broker in world.brokers.items():
        is_offline = any(replica.is_offline for replica in broker.replicas.values())
        world.mend(broker_id)
        if is_offline:
            world.kill(broker_id)
            world.start(broker_id)
    if world.elected is None or world.elected not in world.controllers:
        world.elected = None
        world.elect(min(world.brokers))
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
