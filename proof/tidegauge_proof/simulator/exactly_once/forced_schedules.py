"""Every schedule of faults at named steps, in a fixed order, so that a seed stands for one of them."""

from __future__ import annotations

from tidegauge_proof.simulator.exactly_once.forced_history import Forced
from tidegauge_proof.simulator.exactly_once.forced_steps import FENCING, LOADING, STEPS

FAULTS = ("kill", "kill-silently", "bounce", "pause", "isolate")
LEADERS = ("transactions", "offsets", "output")
OF_COPIERS = ("restart", "pause")
BEFORE_LOADS = ("PrepareCommit replicated", "some markers appended", "TxnOffsetCommit pending")
"""Steps at which the coordinator dies whose successor is struck while it reads its log."""


def _at_steps() -> list[tuple[Forced, ...]]:
    return [(Forced(step, fault, whom),) for step in STEPS for fault in FAULTS for whom in LEADERS]


def _at_fences() -> list[tuple[Forced, ...]]:
    return [
        (Forced("data acknowledged", of_copier, "copier"), Forced(step, fault, whom))
        for step in FENCING
        for of_copier in OF_COPIERS
        for fault in FAULTS
        for whom in LEADERS
    ]


def _at_loads() -> list[tuple[Forced, ...]]:
    return [
        (Forced(before, "kill", "transactions" if "transactions" in step else "offsets"), Forced(step, fault, whom))
        for step in LOADING
        for before in BEFORE_LOADS
        for fault in FAULTS
        for whom in LEADERS
    ]


SCHEDULES = (*_at_steps(), *_at_fences(), *_at_loads())


def forced_of(seed: int) -> tuple[Forced, ...]:
    """Return the schedule of a seed; seeds go through all schedules in turn."""
    return SCHEDULES[seed % len(SCHEDULES)]
