"""Violations as scenario files: histories of what a person can do to real processes, found, cut short, written.

Most steps of a simulated history can't be asked of real brokers: which of two messages comes first, when a controller
decides. So a scenario is searched for in histories of coarse steps (produce, one fetch of a held follower, kill, start,
preferred election), after each of which everything but the held fetches comes to rest, as it does on a real cluster.
The controller is a broker of its own that lives. The file expects after each step what the simulated cluster has then:
leader, epoch, ISR, log end offsets, high watermarks, and at the end every replica's records. So to run it is also to
compare the simulator with real processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidegauge.control import NO_LEADER
from tidegauge_broker.replica.messages import ACKS_ALL, CoreSettings, TopicRules
from tidegauge_controller.decisions.leaders import partitions_to_rebalance
from tidegauge_lab.simulator.checker import Checker, Violation
from tidegauge_lab.simulator.world import FETCH_WAIT_MS, World

CONTROLLER = 0
REPLICAS = (1, 2, 3)
STEPS = 30
LIMIT = 400
"""So many seeds are tried."""
_NEVER_MS = 600_000
_TOPIC = "story"

Act = tuple[str, int]
"""What is done, and to which broker."""


class _Witness(Checker):
    """Notes the first violation, and lets the history go on to a state of rest."""

    broken: Violation | None = None

    def _note(self, check: Callable[..., None], *arguments: Any) -> None:
        try:
            check(*arguments)
        except Violation as broken:
            self.broken = self.broken or broken

    def look_at(self, broker: Any) -> None:
        self._note(super().look_at, broker)

    def look_at_state(self) -> None:
        self._note(super().look_at_state)

    def acknowledged(self, broker: Any, produced: Any, result: Any) -> None:
        self._note(super().acknowledged, broker, produced, result)


@dataclass(slots=True)
class Story:
    """What came of some acts.

    Attributes:
        done: the acts that had an object.
        states: what an observer sees after each.
    """

    done: list[Act] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[int, list[str]] = field(default_factory=dict)
    broken: Violation | None = None


def tell(acts: Sequence[Act], rule: str) -> Story:
    """Do them, up to the first that breaks an invariant."""
    checker = _Witness()
    settings = CoreSettings(replica_lag_time_max_ms=_NEVER_MS, replica_fetch_backoff_ms=100, truncation_rule=rule)
    world = World(REPLICAS, settings, TopicRules(min_insync_replicas=1), checker, controller=CONTROLLER)
    story = Story()
    for name, broker_id in acts:
        if _do(world, name, broker_id):
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
        for broker_id in REPLICAS
    }
    return story


def _do(world: World, name: str, broker_id: int) -> bool:
    """One act, and all that follows from it; False where it has no object."""
    state = world.state_now
    broker = world.brokers[broker_id]
    if name == "produce" and state.leader != NO_LEADER:
        world.produce(state.leader, ACKS_ALL, 1, _NEVER_MS)
    elif name == "step" and broker.is_running and broker.core.leaders_followed():
        if not _round(world, broker_id):
            return False
    elif name == "kill" and broker.is_running:
        world.kill(broker_id)
        world.traffic.requests.clear()
        world.expire(broker_id)
    elif name == "start" and not broker.is_running:
        world.start(broker_id)
    elif name == "elect" and partitions_to_rebalance(world.controllers[CONTROLLER].context):
        world.rebalance(CONTROLLER)
    else:
        return False
    _rest(world)
    return True


def _round(world: World, broker_id: int) -> bool:
    """One fetch, which waits at the leader for its time where there is nothing to give; False if nobody is there."""
    world.pass_time(200)
    asked = world.ask(broker_id)
    for exchange in asked:
        world.arrive(exchange)
        if exchange.answer is None:
            world.pass_time(FETCH_WAIT_MS)
        if exchange.answer is not None:
            world.traffic.answers.remove(exchange)
            world.answer(exchange)
        _rest(world)
    return any(exchange.answer is not None for exchange in asked)


def _rest(world: World) -> None:
    """Decisions, control requests and ISR changes; nobody fetches."""
    while True:
        term = world.controllers[CONTROLLER]
        if term.is_busy:
            world.decide(CONTROLLER, 1000)
        elif any(term.queues.values()):
            for broker_id in [broker_id for broker_id, queue in term.queues.items() if queue]:
                world.deliver_all(broker_id)
        elif world.traffic.verdicts:
            world.tell(world.traffic.verdicts.pop(0))
        else:
            waiting = [b for b in world.brokers if world.outbox[b] and b not in world.asking]
            if not waiting:
                return
            world.propose(waiting[0], CONTROLLER)


def _state(world: World) -> dict[str, Any]:
    state = world.state_now
    live = {b: p for b in REPLICAS if (p := world.brokers[b].partition) is not None}
    return {
        "leader": "none" if state.leader == NO_LEADER else state.leader,
        "epoch": state.leader_epoch,
        "isr": list(state.isr),
        "leo": {b: p.log_end_offset for b, p in live.items()},
        "hw": {b: p.high_watermark for b, p in live.items()},
    }


def find_story(seed: int, rule: str, limit: int = LIMIT) -> tuple[int, Story] | None:
    """The first of so many seeds whose acts break an invariant under a rule, made short."""
    for number in range(seed, seed + limit):
        story = tell(_acts(number), rule)
        if story.broken is not None:
            return number, shortened(story, rule)
    return None


def _acts(seed: int) -> list[Act]:
    random = Random(f"story {seed}")
    names = random.choices(("produce", "step", "kill", "start", "elect"), (6, 14, 2, 2, 1), k=STEPS)
    return [(name, random.choice(REPLICAS)) for name in names]


def shortened(story: Story, rule: str) -> Story:
    """Acts are taken out one after the other as long as the same invariant breaks."""
    assert story.broken is not None
    invariant = story.broken.invariant
    place = len(story.done)
    while place > 0:
        place -= 1
        shorter = tell([*story.done[:place], *story.done[place + 1 :]], rule)
        if shorter.broken is not None and shorter.broken.invariant == invariant:
            story = shorter
            place = min(place, len(story.done))
    return story


def as_scenario(story: Story, seed: int, rule: str) -> str:
    """The file (docs/scenarios.md)."""
    assert story.broken is not None
    lines = [
        f"title: A simulated history that breaks {story.broken.invariant} under {rule}.",
        "teaches: |",
        f"  {story.broken.message}",
        f"rule: replica.truncation.rule={rule}; found by simulation (story {seed}), cut short",
        "cluster:",
        f"  brokers: {len(REPLICAS) + 1}",
        f"  controller: {CONTROLLER}",
        "  settings:",
        f"    replica.truncation.rule: {rule}",
        "    replica.high.watermark.checkpoint.interval.ms: 3600000",
        "topics:",
        f"  - {{name: {_TOPIC}, assignment: {list(REPLICAS)}}}",
        "steps:",
        f"  - hold_fetch: {list(REPLICAS)}",
    ]
    number = 0
    for (name, broker_id), state in zip(story.done, story.states, strict=True):
        match name:
            case "produce":
                lines.append(f"  - produce: {{values: m{number}, answer: later}}")
                number += 1
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
