"""Make short what breaks an invariant: steps are taken out as long as the same invariant breaks.

``shortest`` does it for any list of steps: numbers drawn by a simulated history, acts of a story for real processes,
steps of a trace. ``shrink`` does it for a history, and then sets the numbers within the remaining steps to 0 if
that changes nothing (0 is "nothing special happens").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidegauge_proof.simulator.dice import Schedule
from tidegauge_proof.simulator.simulation import DEFAULT_POWER, DEFAULT_RULE, History, replay_schedule

Item = TypeVar("Item")


def shrink(history: History, rule: str = DEFAULT_RULE, power: str = DEFAULT_POWER) -> History:
    """Find a short history of the same seed's settings that breaks the same invariant, in words."""
    assert history.violation is not None
    invariant = history.violation.invariant

    def breaks(schedule: Schedule) -> bool:
        violation = replay_schedule(history.seed, schedule, rule, power, directories=history.directories).violation
        return violation is not None and violation.invariant == invariant

    schedule = _simplest(shortest(history.schedule, breaks), breaks)
    return replay_schedule(history.seed, schedule, rule, power, directories=history.directories, tells=True)


def shortest(steps: list[Item], still_breaks: Callable[[list[Item]], bool]) -> list[Item]:
    """Return steps of which none can be taken out without ``still_breaks`` becoming false.

    Chunks of halving size are tried from the end to the beginning, single steps until none can go.
    """
    size = max(1, len(steps) // 2)
    while True:
        before = len(steps)
        end = before
        while end > 0:
            shorter = steps[: max(0, end - size)] + steps[end:]
            if still_breaks(shorter):
                steps = shorter
            end -= size
        if size > 1:
            size //= 2
        elif len(steps) == before:
            return steps


def _simplest(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    for place in range(len(schedule)):
        for draw in range(1, len(schedule[place])):
            step = schedule[place]
            simpler = [*schedule[:place], (*step[:draw], 0, *step[draw + 1 :]), *schedule[place + 1 :]]
            if step[draw] and breaks(simpler):
                schedule = simpler
    return schedule
