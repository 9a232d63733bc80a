"""Every order of events in the smallest cluster in KRaft mode: one controller, two brokers, one partition (KIP-966).

It is the simulator's cluster (``simulator.kraft``): a real Raft node, real decisions, real lifecycles and cores, their
disks, and the same checker. Nothing is left to chance: messages take a millisecond, writes none, and a power loss takes
all that was not flushed.

Rules:
    1. A step is one act, or two of which the second one comes before the cluster has reacted to the first; then the
       cluster comes to rest: sessions end, leaders are elected, followers fetch.
    2. States are compared at rest. Epochs count by their order; times, offsets of the metadata log and broker epochs do
       not count.
    3. The shortest schedules come first, so the first one that breaks an invariant is a shortest one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, TypeVar

from tidegauge_controller.metadata.image import RegisteredBroker
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.values import ReplicaKey
from tidegauge_proof.exhaustive.snapshot import dump, load
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.kraft.kraft_quorum import KRaftQuorum
from tidegauge_proof.simulator.kraft.kraft_world import TOPIC, KRaftWorld
from tidegauge_proof.simulator.kraft.sim_broker import SimBroker
from tidegauge_proof.simulator.quorum.quorum_world import Faults

Item = TypeVar("Item")
BROKERS = (1, 2)
WRITE, FLUSH, STOP, KILL, POWER_LOSS, START = "write", "flush", "stop", "kill", "power loss", "start"
_REST_MS = 2500
_HASTE_MS = 2
_START_MS = 3000


class Act(NamedTuple):
    """One thing that happens; the broker is 0 for a write, which goes to the leader."""

    kind: str
    broker: int = 0

    def __str__(self) -> str:
        return self.kind if not self.broker else f"{self.kind} {self.broker}"


Step = tuple[Act, ...]
"""One act, or two in haste."""


@dataclass(frozen=True, slots=True)
class KRaftBounds:
    """How far schedules may go.

    Attributes:
        elr: whether eligible leader replicas are enabled.
        records: how many are written.
        flushes: how often a broker flushes its logs.
        stops: how many controlled shutdowns there are.
        kills: how many processes are killed; their page caches stay.
        power_losses: how many brokers lose power: their next registration is an unclean one.
        haste: whether two acts may come together.
    """

    elr: bool = True
    records: int = 2
    flushes: int = 1
    stops: int = 1
    kills: int = 1
    power_losses: int = 1
    haste: bool = True

    @property
    def limits(self) -> dict[str, int]:
        """How often each kind of act may happen; a start, as often as a process has ended."""
        return {
            WRITE: self.records,
            FLUSH: self.flushes,
            STOP: self.stops,
            KILL: self.kills,
            POWER_LOSS: self.power_losses,
            START: self.stops + self.kills + self.power_losses,
        }


@dataclass(slots=True)
class KRaftFound:
    """An invariant, a shortest schedule that breaks it, and what the checker says."""

    invariant: str
    schedule: Sequence[Step]
    message: str


@dataclass(slots=True)
class KRaftExploration:
    """The result.

    Attributes:
        states: how many different states at rest were reached.
        transitions: how many steps led from one of them to another or the same one.
        depth: steps of the longest of the shortest schedules.
        acknowledged: how many of the states have acknowledged records.
        complete: whether there is no other state within the bounds.
        found: the broken invariants, in the order in which they were found.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    acknowledged: int = 0
    complete: bool = True
    found: list[KRaftFound] = field(default_factory=list[KRaftFound])


class _Still(Dice):
    """Dice that always fall the same way: the shortest time, and the greatest loss."""

    def below(self, end: int) -> int:
        """Return 0."""
        del end
        return 0

    def happens(self, probability: float) -> bool:
        """Whether something is at least as likely as not."""
        return probability >= 0.5

    def choose(self, items: Sequence[Item]) -> Item:
        """Return the first one."""
        return items[0]


def begun(bounds: KRaftBounds) -> KRaftWorld:
    """Return the cluster at rest, with its topic."""
    timers = QuorumConfig(
        "",
        ReplicaKey(0),
        election_timeout_ms=100,
        fetch_timeout_ms=500,
        election_backoff_max_ms=100,
        append_linger_ms=0,
        request_timeout_ms=500,
        retry_backoff_ms=20,
    )
    dice = _Still()
    quorum = KRaftQuorum(dice, 1, len(BROKERS), 1, timers, Faults(longest_delay_ms=1, longest_write_ms=0))
    world = KRaftWorld(dice, quorum, 1, 1, elr=bounds.elr)
    world.longest_ms = 1
    world.start_controller(0)
    world.run(_START_MS)
    for broker_id in world.nodes:
        world.start_broker(broker_id)
    world.run(_START_MS)
    world.create_topic()
    world.run(_START_MS)
    return world


def perform(world: KRaftWorld, act: Act) -> bool:
    """Let an act happen; return whether it could."""
    if act.kind == WRITE:
        leading = list(world.leading())
        for broker, at in leading[:1]:
            world.produce(broker, at, 1)
        return bool(leading)
    broker = world.nodes[act.broker]
    if broker.is_running == (act.kind == START):
        return False
    match act.kind:
        case "start":
            world.start_broker(act.broker)
        case "flush":
            broker.replicas.flush()
            broker.replicas.write_checkpoint()
        case "stop":
            world.stop_broker(act.broker)
        case _:
            world.kill_broker(act.broker, loses_power=act.kind == POWER_LOSS)
    return True


def played(bounds: KRaftBounds, schedule: Sequence[Step]) -> KRaftWorld | None:
    """Return the cluster at rest after a schedule; None if an act is impossible.

    Raises:
        Violation: an invariant is broken on the way.
    """
    world = begun(bounds)
    return world if all(take(world, step) for step in schedule) else None


def take(world: KRaftWorld, step: Step) -> bool:
    """Let a step happen to a cluster at rest, and the cluster come to rest again; return whether its acts could happen.

    Raises:
        Violation: an invariant is broken on the way.
    """
    for place, act in enumerate(step):
        if place:
            world.run(_HASTE_MS)
        if not perform(world, act):
            return False
    world.run(_REST_MS)
    return True


def options(bounds: KRaftBounds, schedule: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps that the bounds leave after a schedule; some of them may not be possible."""
    limits = bounds.limits
    used = [act.kind for step in schedule for act in step]
    acts = [Act(WRITE), *(Act(kind, one) for kind in (FLUSH, STOP, KILL, POWER_LOSS, START) for one in BROKERS)]
    acts = [act for act in acts if used.count(act.kind) < limits[act.kind]]
    yield from ((act,) for act in acts)
    for first, second in product(acts, repeat=2) if bounds.haste else ():
        left = limits[second.kind] - used.count(second.kind) - (first.kind == second.kind)
        if left > 0:
            yield first, second


def state_of(world: KRaftWorld, schedule: Sequence[Step]) -> Hashable:
    """Return what the future of a cluster at rest depends on (rule 2)."""
    [at] = world.partitions
    image = world.checker.newest
    topic = image.topic_named(TOPIC)
    state = None if topic is None else topic.partitions[at.partition]
    brokers = [_broker(world, broker) for broker in world.nodes.values()]
    epochs = sorted({epoch for one in brokers for epoch, _ in one[1]} | ({state.leader_epoch} if state else set()))
    rank = {epoch: place for place, epoch in enumerate(epochs)}
    partition = state and (
        *(state.leader, state.isr, state.elr, state.last_known_elr, state.recovering),
        rank[state.leader_epoch],
    )
    ranked = tuple((one[0], tuple((rank[epoch], start) for epoch, start in one[1])) for one in brokers)
    kinds = sorted(act.kind for step in schedule for act in step)
    return tuple(kinds), partition, ranked, tuple(sorted(world.checker.acknowledged[at]))


def _broker(world: KRaftWorld, broker: SimBroker) -> tuple[Hashable, list[tuple[int, int]]]:
    """Return a broker's state without its epochs, and the epochs of its log."""
    [at] = world.partitions
    replica = broker.replicas.replicas[at]
    registered: RegisteredBroker | None = world.checker.newest.brokers.get(broker.broker_id)
    in_order = registered is not None and broker.clean_epoch == registered.epoch
    partition = replica.partition
    names = tuple(name[1:] for name in replica.log.records)
    return (
        (
            *(broker.is_running, broker.lifecycle.state.name if broker.is_running else "", in_order),
            *(registered is not None and registered.is_active, names, replica.flushed, replica.checkpoint),
            *(replica.leads, -1 if partition is None else partition.high_watermark),
        ),
        [(entry.epoch, entry.start_offset) for entry in replica.log.epochs],
    )


def explore_kraft(
    bounds: KRaftBounds,
    *,
    max_states: int = 100_000,
    fail_fast: bool = False,
    result: KRaftExploration | None = None,
) -> KRaftExploration:
    """Try every schedule within the bounds, the shortest first; each step goes on from a copy of the cluster before.

    Args:
        bounds: how far schedules may go.
        max_states: where to stop.
        fail_fast: stop at the first violation.
        result: is filled in the course of the search; an interruption leaves the findings until then.
    """
    result = KRaftExploration() if result is None else result
    result.states, result.complete = 1, False
    first = begun(bounds)
    known = {state_of(first, ())}
    frontier: list[tuple[tuple[Step, ...], bytes]] = [((), dump(first))]
    while frontier:
        following: list[tuple[tuple[Step, ...], bytes]] = []
        for schedule, before in frontier:
            for step in options(bounds, schedule):
                longer, world = (*schedule, step), load(before)
                try:
                    could = take(world, step)
                except Violation as broken:
                    _note(result, broken, longer)
                    if fail_fast:
                        return result
                    continue
                if not could:
                    continue
                result.transitions += 1
                state = state_of(world, longer)
                if state in known:
                    continue
                if len(known) >= max_states:
                    return result
                known.add(state)
                result.states += 1
                result.acknowledged += any(world.checker.acknowledged.values())
                following.append((longer, dump(world)))
        result.depth += bool(following)
        frontier = following
    result.complete = True
    return result


def _note(result: KRaftExploration, broken: Violation, schedule: Sequence[Step]) -> None:
    if broken.invariant not in {one.invariant for one in result.found}:
        result.found.append(KRaftFound(broken.invariant, schedule, str(broken)))
