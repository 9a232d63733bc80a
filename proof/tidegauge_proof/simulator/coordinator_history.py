"""Common parts of histories of groups and of transactions: the cluster that fails, and the choice of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_proof.simulator.actions import ACTIONS, consume, produce, produce_idempotently, swarm_of
from tidegauge_proof.simulator.acts import words_of
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.swarm import MUST_SURVIVE, Lots, Swarm
from tidegauge_proof.simulator.world import World

_LAG_MS = 2000
_NOT_HERE = (produce, produce_idempotently, consume)
"""Actions of clients that write to the partition what no coordinator would, or read what the checker does not know."""
_FAULT_WEIGHT = 0.1
"""Faults are a tenth as frequent as without coordinators."""
_ATTEMPTS = 12

Act = Callable[[Any, Any, Dice], str | None]
"""Acts on clients and cluster, and returns the act in words; None if it has no object."""


class History:
    """The result of a seed; each kind of history adds its counts.

    Attributes:
        steps: how many were done; with a violation, its number.
        loads: how many loads of coordinators were completed.
        inputs: what the code under test was given: ``World.inputs`` and calls of coordinators.
        died_with: what coordinators were in the middle of when their processes died.
        story: each step in words, if requested.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.steps = 0
        self.violation: Violation | None = None
        self.loads = 0
        self.inputs = 0
        self.died_with: set[str] = set()
        self.story: list[str] = []

    def play(
        self,
        steps: int,
        step: Callable[[], str],
        heal: Callable[[], None],
        *,
        tells: bool,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Do the steps, then heal; keep the first violation, which ends the history.

        Args:
            steps: how many at most.
            step: does one, and returns it in words.
            heal: ends the faults, and checks the end.
            tells: whether to keep the words.
            is_over: whether no further step is to be done.
        """
        try:
            for _ in range(steps):
                if is_over():
                    break
                self.steps += 1
                words = step()
                if tells:
                    self.story.append(words)
            heal()
        except Violation as broken:
            self.violation = broken
        except AssertionError as failed:
            self.violation = Violation("Own", f"the coordinator's own invariant: {failed!r}")


class Stage(NamedTuple):
    """The cluster of a seed, before its first step."""

    swarm: Swarm
    world: World
    partition: Checker


def staged(seed: int) -> Stage:
    """Return the cluster of a seed; its one partition is the internal topic's."""
    swarm = swarm_of(seed, "kip-320", MUST_SURVIVE, directories=1)
    settings = CoreSettings(
        replica_lag_time_max_ms=_LAG_MS,
        replica_fetch_backoff_ms=100,
        coordinator_topics=frozenset({AT.topic}),
        emits_diagnostics=False,
    )
    partition = Checker(swarm.min_insync_replicas)
    world = World(swarm.replicas, settings, TopicRules(min_insync_replicas=swarm.min_insync_replicas), partition)
    world.set_wall_clocks(seed)
    for broker in world.brokers.values():
        broker.flushes = swarm.flushes
    return Stage(swarm, world, partition)


def acted(
    stage: Stage,
    dice: Dice,
    clients: object,
    cluster: CoordinatorWorld[Any],
    actions: Sequence[tuple[Act, float]],
    cluster_share: float,
) -> Iterator[str]:
    """Do one step after the other and yield each in words; empty if no attempt found anything to do.

    Args:
        stage: the cluster.
        dice: chooses.
        clients: what the actions are given.
        cluster: its coordinators.
        actions: of clients, network and coordinators, with their weights.
        cluster_share: the part of the steps that happen to the cluster.
    """
    weights = [
        0.0 if action in _NOT_HERE else weight * (_FAULT_WEIGHT if is_fault else 1)
        for (action, _, is_fault), weight in zip(ACTIONS, stage.swarm.weights, strict=True)
    ]
    lots = Lots(weights)
    lots_here = Lots([weight for _, weight in actions])
    while True:
        dice.begin()
        words = ""
        for _ in range(_ATTEMPTS):
            if dice.happens(cluster_share):
                done = ACTIONS[lots.place(dice.below(lots.end))][0](stage.world, dice, stage.swarm)
                cluster.run()
                words = words_of(done)
            else:
                action = actions[lots_here.place(dice.below(lots_here.end))][0]
                words = action(clients, cluster, dice) or ""
            if words:
                break
        yield words
