"""Random traces: the steps of ``replay``, chosen by chance among those that can do something now.

A trace step is coarser than an event of ``simulate``: a fetch is a whole round, and faults of the network are what the
trace leaves out. So the state space is the published models', and rules whose absence needs many things to come
together (a zombie, an election, a fetch just then) are hit in thousands of steps instead of millions. Traces stay short
and few records are written: most counterexamples have some ten steps. The result is a trace, and can be kept as a
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tidegauge_proof.simulator.replay import Outcome, Replay, replay
from tidegauge_proof.simulator.shrink import shortest
from tidegauge_proof.simulator.trace import Trace

REPLICAS = ("r1", "r2", "r3")
_LATE_EPOCHS = 3
_NAMES = frozenset({"leader", "follower", "replica"})


@dataclass(slots=True)
class FoundTrace:
    """A trace, and what came of it."""

    trace: Trace
    outcome: Outcome


def random_trace(seed: int, steps: int, rule: str, *, power: float = 0.0) -> FoundTrace:
    """Drive the core by chance, to the first violation or for so many steps; ``power`` weighs power losses."""
    random = Random(seed)
    run = Replay(Trace(f"seed {seed}", "", "", REPLICAS, ()), rule)
    done: list[Mapping[str, Any]] = []
    epochs = random.choice((3, 4, 8))
    records = random.choice((2, 3, 6))
    while len(done) < steps and run.outcome.held:
        step = _choose(run, random, power, epochs, records)
        if step is not None:
            done.append(step)
            run.do(len(done), step)
    return FoundTrace(Trace(f"seed {seed}", rule, "", REPLICAS, tuple(done)), run.outcome)


def shortened(found: FoundTrace) -> FoundTrace:
    """Return the trace without steps that its broken invariant does not need."""
    rule, wanted = found.outcome.rule, found.outcome.violations[0]["invariant"]

    def breaks(steps: list[Mapping[str, Any]]) -> bool:
        violations = replay(_trace(found, steps), rule).violations
        return bool(violations) and violations[0]["invariant"] == wanted

    trace = _trace(found, shortest(list(found.trace.steps), breaks))
    return FoundTrace(trace, replay(trace, rule))


def _trace(found: FoundTrace, steps: list[Mapping[str, Any]]) -> Trace:
    trace = found.trace
    return Trace(trace.id, trace.weakness, trace.breaks, trace.replicas, tuple(steps))


def as_json(found: FoundTrace) -> dict[str, Any]:
    """The trace as a file holds it."""

    def named(key: str, value: Any) -> Any:
        if key == "isr":
            return [found.trace.name(one) for one in value]
        return found.trace.name(value) if key in _NAMES and value is not None else value

    violations = found.outcome.violations
    return {
        "id": found.trace.id,
        "weakness": found.trace.weakness,
        "breaks": violations[0]["invariant"] if violations else "",
        "replicas": list(found.trace.replicas),
        "steps": [{key: named(key, value) for key, value in step.items()} for step in found.trace.steps],
    }


def _choose(run: Replay, random: Random, power: float, epochs: int, records: int) -> Mapping[str, Any] | None:
    """A step that is likely to do something; None where the draw has no object."""
    replicas = list(run.brokers)
    partitions = {b: broker.partition for b, broker in run.brokers.items()}
    leaders = [b for b, at in partitions.items() if at is not None and at.leader_role is not None]
    follows = [(b, at.follower_role.leader) for b, at in partitions.items() if at is not None and at.follower_role]
    weights = {
        "controller": 2.0 if run.current.leader_epoch < epochs else 0.0,
        "leader_and_isr": 6.0 if run.decided else 0.0,
        "append": 4.0 if leaders and run.appended < records else 0.0,
        "evaluate_hw": 2.0 if leaders else 0.0,
        "leader_isr": 4.0 if leaders else 0.0,
        "fetch": 9.0 if follows else 0.0,
        "truncate": 1.0 if follows else 0.0,
        "power_loss": power,
    }
    kind = random.choices(list(weights), list(weights.values()))[0]
    match kind:
        case "controller":
            isr = _some_of(random, run.current.isr)
            return {"do": kind, "leader": random.choice(isr), "epoch": run.current.leader_epoch + 1, "isr": isr}
        case "leader_and_isr":
            replica = random.choice(replicas)
            at = partitions[replica]
            news = [epoch for epoch in sorted(run.decided)[-_LATE_EPOCHS:] if at is None or epoch > at.leader_epoch]
            return {"do": kind, "replica": replica, "epoch": random.choice(news)} if news else None
        case "append" | "evaluate_hw":
            return {"do": kind, "leader": random.choice(leaders)}
        case "leader_isr":
            leader = random.choice(leaders)
            isr = _changed_isr(run, random, leader)
            accepted = random.random() < 0.85  # most proposals arrive
            return {"do": kind, "leader": leader, "isr": isr, "accepted": accepted} if isr else None
        case "power_loss":
            victim = random.choice(replicas)
            end = run.brokers[victim].log.log_end_offset
            return {"do": kind, "replica": victim, "keep_leo": max(0, end - random.choice((0, 1, 1, 2)))}
        case _:
            follower, leader = random.choice(follows)
            return {"do": kind, "follower": follower, "leader": leader}


def _some_of(random: Random, isr: tuple[int, ...]) -> tuple[int, ...]:
    """The ISR, or less of it."""
    if random.random() < 0.7:  # most elections keep the ISR
        return isr
    return tuple(sorted(random.sample(isr, random.randint(1, len(isr)))))


def _changed_isr(run: Replay, random: Random, leader: int) -> tuple[int, ...]:
    """One replica more, or one less; empty where neither can be."""
    partition = run.brokers[leader].partition
    assert partition is not None
    assert partition.leader_role is not None
    isr = partition.leader_role.isr.isr
    outside = [b for b in run.brokers if b not in isr]
    others = [b for b in isr if b != leader]
    if outside and (not others or random.random() < 0.6):  # joining is the more interesting half
        return (*isr, random.choice(outside))
    if not others:
        return ()
    gone = random.choice(others)
    return tuple(b for b in isr if b != gone)
