"""One simulated history of consume, transform, produce: copiers and readers on a cluster that fails.

The cluster is ``stage``'s, with the faults of ``simulation``. After the faults everything is delivered, the
timeouts pass, and acknowledged effects must be there. Requests that are late by more than their sender's patience are a
mode (``network``).
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.collections_off import collections_off
from tidegauge_proof.simulator.actions import ACTIONS, DISK_ACTIONS, consume, pass_time, produce, produce_idempotently
from tidegauge_proof.simulator.acts import Act, words_of
from tidegauge_proof.simulator.disk_actions import damage_batch
from tidegauge_proof.simulator.exactly_once.joint_actions import ACTIONS_HERE
from tidegauge_proof.simulator.exactly_once.network import LATE_ENDS, TIMELY
from tidegauge_proof.simulator.exactly_once.stage import JointHistory, Stage, count, judge, staged
from tidegauge_proof.simulator.swarm import Lots

_CLUSTER_SHARE = 0.12
_FAULT_WEIGHTS = (0.01, 0.03, 0.1)
"""Faults are that much as frequent as without clients, by seed."""
_ATTEMPTS = 30
_NOT_HERE = (produce, produce_idempotently, consume, pass_time, damage_batch)


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


def _run(seed: int, steps: int, mode: str, *, judges: bool, tells: bool) -> JointHistory:
    history = JointHistory(seed)
    stage = staged(seed, mode)
    stage.world.tells = tells
    history.play(steps, _chooser(stage), lambda: judge(history, stage, judges=judges), tells=tells)
    count(history, stage)
    return history


def _chooser(stage: Stage) -> Callable[[], str]:
    """Return a function that does one step and describes it; empty if none was possible."""
    of_cluster = (*ACTIONS, *DISK_ACTIONS) if stage.swarm.directories > 1 else ACTIONS
    fault_weight = _FAULT_WEIGHTS[stage.seed // 3 % len(_FAULT_WEIGHTS)]
    lots = Lots(
        [
            0.0 if action in _NOT_HERE else weight * (fault_weight if is_fault else 1)
            for (action, _, is_fault), weight in zip(of_cluster, stage.swarm.weights, strict=True)
        ]
    )
    lots_here = Lots([weight for _, weight in ACTIONS_HERE])
    dice, world, cluster = stage.dice, stage.world, stage.cluster

    def step() -> str:
        dice.begin()
        for _ in range(_ATTEMPTS):
            if dice.happens(_CLUSTER_SHARE):
                done: Act | None = of_cluster[lots.place(dice.below(lots.end))][0](world, dice, stage.swarm)
                cluster.settle()
                words = words_of(done) if done is not None else ""
            else:
                words = ACTIONS_HERE[lots_here.place(dice.below(lots_here.end))][0](stage) or ""
                cluster.settle()
            if words:
                return words
        return ""

    return step
