"""A long history that breaks an invariant, made short: steps are taken out as long as the same invariant breaks.

Chunks of halving size are tried from the end to the beginning, again and again until not a single step can go; then the
numbers within the steps that are left are made 0 where that changes nothing (0 is "nothing special happens").
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge_proof.simulator.dice import Schedule
from tidegauge_proof.simulator.simulation import DEFAULT_POWER, DEFAULT_RULE, History, replay_schedule


def shrink(history: History, rule: str = DEFAULT_RULE, power: str = DEFAULT_POWER) -> History:
    """A short history of the same seed's settings that breaks the same invariant, told in words."""
    assert history.violation is not None
    invariant = history.violation.invariant

    def breaks(schedule: Schedule) -> bool:
        violation = replay_schedule(history.seed, schedule, rule, power).violation
        return violation is not None and violation.invariant == invariant

    schedule = _simplest(_shortest(history.schedule, breaks), breaks)
    return replay_schedule(history.seed, schedule, rule, power, tells=True)


def _shortest(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    size = max(1, len(schedule) // 2)
    while True:
        before = len(schedule)
        end = before
        while end > 0:
            shorter = schedule[: max(0, end - size)] + schedule[end:]
            if breaks(shorter):
                schedule = shorter
            end -= size
        if size > 1:
            size //= 2
        elif len(schedule) == before:
            return schedule


def _simplest(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    for place in range(len(schedule)):
        for draw in range(1, len(schedule[place])):
            step = schedule[place]
            simpler = [*schedule[:place], (*step[:draw], 0, *step[draw + 1 :]), *schedule[place + 1 :]]
            if step[draw] and breaks(simpler):
                schedule = simpler
    return schedule
