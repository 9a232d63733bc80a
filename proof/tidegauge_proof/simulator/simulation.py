"""One simulated history: a seed, so many steps, the faults' end, and whether every invariant held.

The same seed gives the same history, on every machine: chance comes from ``Dice`` alone. ``history_of`` runs a seed;
``replay_schedule`` runs a recorded schedule under the same settings, and can keep what each step did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegauge.collections_off import collections_off
from tidegauge.control import NO_LEADER
from tidegauge_broker.replica.messages import ACKS_ALL, CoreSettings, TopicRules
from tidegauge_proof.simulator.actions import ACTIONS, DISK_ACTIONS, swarm_of
from tidegauge_proof.simulator.acts import FAULTS_END, Act, act
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.controllers import chosen
from tidegauge_proof.simulator.coverage import Coverage
from tidegauge_proof.simulator.dice import Dice, Schedule, Step
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.swarm import MAY_LOSE, MUST_SURVIVE, Lots, Swarm
from tidegauge_proof.simulator.wall_clocks import MAX_SKEW_MS
from tidegauge_proof.simulator.world import World

DEFAULT_RULE = "kip-320"
POWER_MODES = (MUST_SURVIVE, MAY_LOSE, "none", "unseen", "unreported", "uncommitted", "any")
"""Records a power loss may take: see ``actions.swarm_of`` for the first two, ``actions.cut_power`` for the others."""
DEFAULT_POWER = MUST_SURVIVE
_LAG_MS = 2000
_HEAL_ROUNDS = 30
_ATTEMPTS = 12
_ACTIONS = tuple(action for action, _, _ in (*ACTIONS, *DISK_ACTIONS))
_CORE_INVARIANT = re.compile(r"I\d+|WholeBatches")


@dataclass(slots=True)
class History:
    """The result of a seed.

    Attributes:
        directories: log directories of each broker.
        steps: how many were done; with a violation its number, counted from 1, and one more than all if it showed
            only after the faults had ended.
        schedule: the numbers drawn, step by step.
        story: the act of each step (None: nothing), if requested.
        events: the brokers' and controllers' events as their logs would have them, where the story was asked for.
        lost: what power losses took with the last in-sync copy, where histories may lose that.
        inputs: what cores and ZooKeeper were given in it (``World.inputs``).
    """

    seed: int
    directories: int = 1
    steps: int = 0
    violation: Violation | None = None
    schedule: Schedule = field(default_factory=list)
    story: list[Act | None] = field(default_factory=list)
    events: list[dict[str, object]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    inputs: int = 0
    acknowledged: int = 0
    leader_epochs: int = 0
    controller_epochs: int = 0


def history_of(
    seed: int,
    steps: int,
    rule: str = DEFAULT_RULE,
    power: str = DEFAULT_POWER,
    coverage: Coverage | None = None,
    directories: int | None = None,
) -> History:
    """Run a seed; ``coverage`` collects states and transitions, ``directories`` overrides the seed's number."""
    dice = Dice(seed)
    swarm = swarm_of(seed, rule, power, directories)
    with collections_off():  # a history makes few cycles, and a search costs a tenth of the time
        return _run(seed, dice, ((),) * steps, swarm, rule, tells=False, coverage=coverage)


def replay_schedule(
    seed: int,
    schedule: Schedule,
    rule: str = DEFAULT_RULE,
    power: str = DEFAULT_POWER,
    *,
    directories: int | None = None,
    tells: bool = False,
) -> History:
    """Run recorded steps under the settings of a seed."""
    with collections_off():
        return _run(seed, Dice(), schedule, swarm_of(seed, rule, power, directories), rule, tells=tells)


def _run(
    seed: int,
    dice: Dice,
    schedule: Iterable[Step],
    swarm: Swarm,
    rule: str,
    *,
    tells: bool,
    coverage: Coverage | None = None,
) -> History:
    history = History(seed, swarm.directories)
    world = _new_world(swarm, rule, tells=tells)
    world.set_wall_clocks(seed)
    lots = Lots(swarm.weights)
    events = world.keep_events() if tells else None
    if coverage is not None:
        coverage.begin()
    try:
        for recorded in schedule:
            history.steps += 1
            dice.begin(recorded)
            try:
                done = _step(world, dice, swarm, lots, coverage)
            finally:
                history.schedule.append(tuple(dice.step))
            if tells:
                history.story.append(done)
                _date(events, world)
        history.steps += 1
        if tells:
            history.story.append(act(FAULTS_END))
        heal(world)
        history.steps -= 1
    except (Violation, AssertionError) as broken:
        history.violation = _as_violation(broken)
    _date(events, world)
    history.events = events or []
    _sum_up(history, world)
    world.end()
    return history


def _new_world(swarm: Swarm, rule: str, *, tells: bool) -> World:
    """Return a healthy cluster by a swarm, with a checker for each partition."""
    may_lose = swarm.power == "any" and not swarm.flushes
    checkers = [Checker(swarm.min_insync_replicas, may_lose=may_lose) for _ in range(swarm.partitions)]
    settings = CoreSettings(
        replica_lag_time_max_ms=_LAG_MS,
        replica_fetch_backoff_ms=100,
        truncation_rule=rule,
        coordinator_topics=frozenset({AT.topic}),
        refuses_previous_incarnation=not chosen.trusts_restarted_brokers(),
        emits_diagnostics=tells,
    )
    rules = TopicRules(min_insync_replicas=swarm.min_insync_replicas)
    world = World(swarm.replicas, settings, rules, *checkers, directories=swarm.directories)
    world.tells = tells
    for broker in world.brokers.values():
        broker.flushes = swarm.flushes
    return world


def _sum_up(history: History, world: World) -> None:
    """Fill in what came of a history that has ended."""
    history.lost = [words for partition in world.partitions for words in partition.checker.lost]
    history.inputs = world.inputs
    history.acknowledged = sum(partition.clients.acknowledged for partition in world.partitions)
    history.leader_epochs = sum(partition.state_now.leader_epoch for partition in world.partitions)
    history.controller_epochs = world.store.controller_epochs


def _date(events: list[dict[str, object]] | None, world: World) -> None:
    """Date the events since the last call to now."""
    for event in reversed(events or []):
        if "time_ms" in event:
            return
        event["time_ms"] = world.now_ms


def _step(world: World, dice: Dice, swarm: Swarm, lots: Lots, coverage: Coverage | None) -> Act | None:
    """One event: actions are drawn until one finds something to do."""
    is_recorded = dice.is_recorded
    for _ in range(_ATTEMPTS):
        action = _ACTIONS[lots.place(dice.below(lots.end))]
        done = action(world, dice, swarm)
        if done is not None or (is_recorded and dice.is_spent):
            if coverage is not None:
                coverage.look_at(world, action.__name__)
            return done
    return None


def _as_violation(broken: Violation | AssertionError) -> Violation:
    if isinstance(broken, Violation):
        return broken
    name = _CORE_INVARIANT.match(str(broken))
    if name is None:
        raise broken
    return Violation(name[0], f"the core's own invariant: {broken}")


def heal(world: World) -> None:
    """End the faults; then everything must come to rest in order (Proceeds, Converges)."""
    end_faults(world)
    if any(broker.has_faults for broker in world.brokers.values()):
        rest(world)
        for partition in world.partitions:
            _check_proceeds(world, partition)
        mend(world)
    rest(world)
    for partition in world.partitions:
        partition.checker.converged()
    _last_produce(world)


def end_faults(world: World) -> None:
    """Restore processes and links, deliver everything; failed disks stay failed, and no other will fail."""
    world.cut_links.clear()
    world.paused.clear()
    world.traffic.strays.clear()
    for broker in world.brokers.values():
        broker.failing.clear()
        for replica in broker.replicas.values():
            replica.writes_left = None
    for broker_id, broker in world.brokers.items():
        if not broker.is_running:
            world.start(broker_id)
        elif broker_id in world.without_session:
            world.register_again(broker_id)
    for broker_id in [b for b in world.controllers if b != world.elected]:
        world.end_term(broker_id)
    if world.elected is None:
        world.elect(min(world.brokers))
    world.traffic.requests.clear()
    world.traffic.responses.clear()
    for rounds in world.open_rounds.values():
        for exchange in [*rounds]:
            world.give_up(exchange)


def right_wall_clocks(world: World) -> None:
    """Let the brokers' wall clocks be right from now on, and what they stored ahead of time be in the past."""
    if world.wall_clocks is not None:
        world.wall_clocks = None
        for broker in world.brokers.values():
            broker.wall.ahead_ms = 0
        world.pass_time(MAX_SKEW_MS)


def rest(world: World) -> None:
    """Time passes and everything is delivered, until two looks at the cluster show the same."""
    calm = 0
    for _ in range(_HEAL_ROUNDS):
        before = _picture(world)
        world.pass_time(_LAG_MS + 500)
        _settle(world)
        calm = calm + 1 if _picture(world) == before else 0
        if calm == 2:
            return


def _check_proceeds(world: World, partition: SimPartition) -> None:
    """Check that each partition proceeds, independent of other partitions' faults.

    A member that is offline may stay in the ISR while it has all of the leader's log: a proposal that was on its way
    when its directory failed put it there, and it leaves with the next record, for which it is too late (Kafka's
    controller asks only whether a joiner's broker is alive).
    """
    faulty = {b for b, replica in partition.brokers.items() if replica.is_offline or replica.damaged is not None}
    offline = {b for b, replica in partition.brokers.items() if replica.is_offline}
    if not faulty:
        partition.checker.converged("Proceeds")
    state = partition.state_now
    if state.leader == NO_LEADER:
        if not set(state.isr) <= offline:
            raise Violation("Proceeds", f"{partition.at} has no leader, and ISR {list(state.isr)}; offline: {offline}")
        return
    end = partition.brokers[state.leader].log.log_end_offset
    late = {b for b in offline & set(state.isr) if partition.brokers[b].log.log_end_offset < end}
    if state.leader in offline or (len(state.isr) > 1 and late):
        raise Violation(
            "Proceeds", f"{partition.at} keeps leader {state.leader} and ISR {state.isr}; offline: {offline}"
        )
    if state.leader not in faulty and len(state.isr) >= partition.checker.min_insync_replicas:
        _must_acknowledge(world, partition, "Proceeds")


def mend(world: World) -> None:
    """Every disk works again, brokers with replicas offline are restarted, and there is a controller."""
    for broker_id, broker in world.brokers.items():
        is_offline = any(replica.is_offline for replica in broker.replicas.values())
        world.mend(broker_id)
        if is_offline:
            world.kill(broker_id)
            world.start(broker_id)
    if world.elected is None or world.elected not in world.controllers:
        world.elected = None
        world.elect(min(world.brokers))


def _picture(world: World) -> object:
    return [
        (
            partition.state_now,
            [
                (replica.log.log_end_offset, hosted.high_watermark if (hosted := replica.partition) else -1)
                for replica in partition.brokers.values()
            ],
        )
        for partition in world.partitions
    ]


def _settle(world: World) -> None:
    """Deliver all that is on its way, and let everybody fetch, until nothing changes."""
    before: object = None
    for _ in range(_HEAL_ROUNDS):
        for broker_id in [*world.controllers]:
            while broker_id in world.controllers and world.controllers[broker_id].is_busy:
                world.decide(broker_id, 1000)
        for broker_id in world.brokers:
            world.deliver_all(broker_id)
            world.whole_round(broker_id)
            elected = world.elected
            while elected in world.controllers and world.proposals.may_propose(broker_id):
                world.proposals.propose(broker_id, elected)
        while world.traffic.verdicts:
            world.proposals.tell(world.traffic.verdicts.pop(), world.now_ms)
        for broker_id in sorted(world.leaving | world.unheard):
            world.stop(broker_id)
            world.start(broker_id)
            if world.elected is None:
                world.elect(broker_id)
        after = _picture(world)
        if (
            after == before
            and not any(world.proposals.outbox.values())
            and not any(t.is_busy for t in world.controllers.values())
        ):
            return
        before = after


def _last_produce(world: World) -> None:
    """And records flow again."""
    for partition in world.partitions:
        _must_acknowledge(world, partition, "Converges")
    for partition in world.partitions:
        partition.checker.converged()
        log = partition.brokers[partition.state_now.leader].log
        complaint = partition.clients.complaint(log, partition.checker.lost_numbers)
        if complaint:
            raise Violation("ClientHistory", complaint)


def _must_acknowledge(world: World, partition: SimPartition, invariant: str) -> None:
    leader = partition.state_now.leader
    before = partition.clients.acknowledged
    world.produce(leader, ACKS_ALL, 1, 60_000, [partition])
    _settle(world)
    if partition.clients.acknowledged == before and invariant == "Proceeds":
        for _ in range(3):  # until the leader has removed who does not fetch
            world.pass_time(_LAG_MS)
            _settle(world)
    if partition.clients.acknowledged == before:
        raise Violation(
            invariant, f"leader {leader} of {partition.at} acknowledges no record after the faults have ended"
        )
