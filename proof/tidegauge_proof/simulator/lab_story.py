"""Violations as scenario files: histories of what a person can do to real processes, found, shortened, written.

Most steps of a simulated history can't be asked of real brokers: which of two messages comes first, when a controller
decides. So a scenario is searched for in histories of coarse steps (produce, one fetch of a held follower, kill, start,
preferred election, a leader that no call reaches until it is healed and that clients still write to), after each of
which everything but the held fetches comes to rest, as it does on a real cluster.
The controller is a broker of its own that lives. The file expects after each step what the simulated cluster has then:
leader, epoch, ISR, log end offsets, high watermarks, and at the end every replica's records. So to run it is also to
compare the simulator with real processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from tidegauge.control import NO_LEADER
from tidegauge_broker.replica.messages import ACKS_ALL, CoreSettings, TopicRules
from tidegauge_broker.replica.rules.tried import TriedRules
from tidegauge_controller.rules.election import Choose
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.controllers import chosen
from tidegauge_proof.simulator.follower_rounds import FETCH_WAIT_MS
from tidegauge_proof.simulator.shrink import shortest
from tidegauge_proof.simulator.witness import Witness
from tidegauge_proof.simulator.world import World

CONTROLLER = 0
ASSIGNMENTS = ((1, 2, 3), (1, 2))
STEPS = 40
LIMIT = 400
"""So many seeds are tried."""
_NEVER_MS = 600_000
_TOPIC = "story"


class Tried(TriedRules, Protocol):
    """Rules that are tried, with an election."""

    @property
    def election(self) -> Choose | None:
        """The election after the loss of a leader; None: Kafka's."""
        ...


Act = tuple[str, int]
"""An action, and its broker."""


@dataclass(slots=True)
class Story:
    """The result of some acts.

    Attributes:
        done: the acts that had an object.
        states: what an observer sees after each.
    """

    replicas: tuple[int, ...]
    done: list[Act] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[int, list[str]] = field(default_factory=dict)
    broken: Violation | None = None


def tell(replicas: Sequence[int], acts: Sequence[Act], rule: str, tried: Tried | None = None) -> Story:
    """Do them, up to the first that breaks an invariant; rules that are tried stand in for Kafka's."""
    checker = Witness()
    settings = CoreSettings(
        replica_lag_time_max_ms=_NEVER_MS, replica_fetch_backoff_ms=100, truncation_rule=rule, tried=tried
    )
    world = World(replicas, settings, TopicRules(min_insync_replicas=1), checker, controller=CONTROLLER)
    if tried is not None:
        chosen.electing_by(world.controllers[CONTROLLER], tried.election)
    story = Story(tuple(replicas))
    for name, broker_id in acts:
        if broker_id in {CONTROLLER, *replicas} and _do(world, name, broker_id):
            story.done.append((name, broker_id))
            story.states.append(_state(world))
            if checker.broken is not None:
                break
    story.broken = checker.broken
    story.logs = {
        broker_id: [
            f"m{world.clients.number_of[name.batch_crc]}@{name.leader_epoch}"
            for name in world.brokers[broker_id].log.records
        ]
        for broker_id in replicas
    }
    return story


def _do(world: World, name: str, broker_id: int) -> bool:
    """Do one act with its consequences; return False if it has no object."""
    state = world.state_now
    broker = world.brokers[broker_id]
    if name == "produce" and state.leader != NO_LEADER:
        world.produce(state.leader, ACKS_ALL, 1, _NEVER_MS)
    elif name == "write" and broker_id in world.leaders():
        world.produce(broker_id, 1, 1, _NEVER_MS)
    elif name == "cut" and broker_id == state.leader and not world.cut_links:
        world.cut_links |= {(other, broker_id) for other in world.brokers if other != broker_id}
    elif name == "heal" and world.cut_links:
        world.cut_links.clear()
    elif name == "step" and broker.is_running and broker.core.leaders_followed():
        if not _round(world, broker_id):
            return False
    elif name == "kill" and broker.is_running:
        world.kill(broker_id)
        if _is_cut(world, broker_id):  # the network partition is made inside the process
            world.cut_links.clear()
        world.traffic.requests.clear()
        world.expire(broker_id)
    elif name == "start" and not broker.is_running:
        world.start(broker_id)
    elif name == "elect" and world.controllers[CONTROLLER].has_to_rebalance():
        world.rebalance(CONTROLLER)
    else:
        return False
    _rest(world)
    return True


def _is_cut(world: World, broker_id: int) -> bool:
    return world.is_cut(CONTROLLER, broker_id)


def _leaders_of(world: World, broker_id: int) -> frozenset[int]:
    """Whom it follows."""
    return frozenset(world.brokers[broker_id].core.leaders_followed())


def _round(world: World, broker_id: int) -> bool:
    """Send one fetch, which waits at the leader while there are no records; return False if the leader is dead."""
    if any(world.is_cut(broker_id, leader) for leader in _leaders_of(world, broker_id)):
        return False
    world.pass_time(200)
    asked = world.ask(broker_id)
    for exchange in asked:
        world.arrive(exchange)
        if exchange.response is None:
            world.pass_time(FETCH_WAIT_MS)
        if exchange.response is not None:
            world.traffic.responses.remove(exchange)
            world.deliver_response(exchange)
        _rest(world)
    return any(exchange.response is not None for exchange in asked)


def _rest(world: World) -> None:
    """Run decisions, control requests and ISR changes, but no fetch."""
    while True:
        term = world.controllers[CONTROLLER]
        if term.is_busy:
            world.decide(CONTROLLER, 1000)
        elif reached := [b for b, queue in term.queues.items() if queue and not _is_cut(world, b)]:
            for broker_id in reached:
                world.deliver_all(broker_id)
        elif world.traffic.verdicts:
            world.proposals.tell(world.traffic.verdicts.pop(0), world.now_ms)
        else:
            waiting = [b for b in world.brokers if world.proposals.may_propose(b)]
            if not waiting:
                return
            world.proposals.propose(waiting[0], CONTROLLER)


def _state(world: World) -> dict[str, Any]:
    """Return the file's expectations; the leader only if it leads."""
    state = world.state_now
    live = {b: p for b in world.replicas if (p := world.brokers[b].partition) is not None}
    expected: dict[str, Any] = {}
    if state.leader == NO_LEADER:
        expected["leader"] = "none"
    elif state.leader in world.leaders() and live[state.leader].leader_epoch == state.leader_epoch:
        expected["leader"] = state.leader
    return expected | {
        "epoch": state.leader_epoch,
        "isr": list(state.isr),
        "leo": {b: p.log_end_offset for b, p in live.items()},
        "hw": {b: p.high_watermark for b, p in live.items()},
    }


def find_story(seed: int, rule: str, limit: int = LIMIT) -> tuple[int, Story] | None:
    """Find the first seed, up to a limit, whose acts break an invariant under a rule, and shorten it."""
    for number in range(seed, seed + limit):
        story = tell(ASSIGNMENTS[number % 2], acts_of(number), rule)
        if story.broken is not None:
            return number, shortened(story, rule)
    return None


def acts_of(seed: int) -> list[Act]:
    """Return the acts of a seed; some try a fast fail-over."""
    random = Random(f"story {seed}")
    if seed % 4 == 1:
        return _around_a_fast_fail_over(random)
    weights = {"produce": 6, "step": 14, "kill": 2, "start": 2, "elect": 1}
    if seed % 2:
        weights |= {"write": 3, "cut": 1, "heal": 1}
    names = random.choices(list(weights), list(weights.values()), k=STEPS)
    brokers = ASSIGNMENTS[seed % 2]
    return [(name, random.choice(brokers)) for name in names]


def _around_a_fast_fail_over(random: Random) -> list[Act]:
    """Two replicas change their leader to and fro while one is partitioned: acts left out, others put in by chance.

    A leader that missed an epoch writes on in its own (a private epoch, KAFKA-6361). Chance alone comes by that too
    seldom.
    """
    acts: list[Act] = []
    for act in _FAST_FAIL_OVER:
        if random.random() < 0.95:
            acts.append(act)
        if random.random() < 0.15:
            acts.append((random.choice(("produce", "write", "step")), random.choice((1, 2))))
    return acts


_FAST_FAIL_OVER: tuple[Act, ...] = (
    ("kill", 1),
    ("start", 1),
    *[("step", 1)] * 3,
    ("produce", 2),
    *[("step", 1)] * 2,
    ("cut", 2),
    ("elect", 0),
    ("write", 2),
    ("produce", 1),
    ("kill", 1),
    ("heal", 0),
    ("produce", 2),
    ("start", 1),
    *[("step", 1)] * 4,
)


def shortened(story: Story, rule: str, tried: Tried | None = None) -> Story:
    """Return the story without acts that its broken invariant does not need."""
    assert story.broken is not None
    invariant = story.broken.invariant

    def breaks(acts: list[Act]) -> bool:
        broken = tell(story.replicas, acts, rule, tried).broken
        return broken is not None and broken.invariant == invariant

    return tell(story.replicas, shortest(story.done, breaks), rule, tried)


def as_scenario(story: Story, seed: int, rule: str) -> str:
    """Return the scenario file (docs/scenarios.md)."""
    assert story.broken is not None
    lines = [
        f"title: A simulated history that breaks {story.broken.invariant} under {rule}.",
        "teaches: |",
        f"  {story.broken.message}",
        f"rule: replica.truncation.rule={rule}; found by simulation (story {seed}), shortened",
        "cluster:",
        f"  brokers: {len(story.replicas) + 1}",
        f"  controller: {CONTROLLER}",
        "  settings:",
        f"    replica.truncation.rule: {rule}",
        "    replica.high.watermark.checkpoint.interval.ms: 3600000",
        "topics:",
        f"  - {{name: {_TOPIC}, assignment: {list(story.replicas)}}}",
        "steps:",
        f"  - hold_fetch: {list(story.replicas)}",
    ]
    number = isolated = 0
    for (name, broker_id), state in zip(story.done, story.states, strict=True):
        match name:
            case "produce":
                lines.append(f"  - produce: {{values: m{number}, answer: later}}")
                number += 1
            case "write":
                lines.append(f"  - produce: {{values: m{number}, acks: 1, via: {broker_id}}}")
                number += 1
            case "cut":
                isolated = broker_id
                lines.append(f"  - isolate: {{broker: {broker_id}, from: brokers, direction: in}}")
            case "heal":
                lines.append(f"  - heal: {isolated}")
            case "step":
                lines.append(f"  - step_fetch: {broker_id}")
            case "start":
                lines.append(f"  - start: {{brokers: {broker_id}, held: {_TOPIC}-0}}")
            case "kill":
                lines.append(f"  - kill: {broker_id}")
            case _:
                lines.append("  - elect: preferred")
        lines.append(f"  - expect: {_flow(state)}")
    logs = {broker_id: f"[{', '.join(log)}]" for broker_id, log in story.logs.items()}
    lines.append(f"  - expect: {{log: {_flow(logs)}}}")
    lines.append(f"    note: {story.broken.invariant} does not hold")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    return str(value)
