"""The settings of a simulated history, and lots by weight.

A swarm turns faults up, down and off for each history, since faults that always come together hide one another.
``actions.swarm_of`` draws one from a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

MUST_SURVIVE, MAY_LOSE = "must-survive", "may-lose"
"""The two modes of histories; see ``actions.swarm_of``."""


@dataclass(slots=True)
class Swarm:
    """The settings of one history, drawn from its seed."""

    min_insync_replicas: int
    replicas: tuple[int, ...]
    max_records: int
    loss: float
    weights: tuple[float, ...]
    power: str
    flushes: bool
    directories: int = 1
    """Log directories of each broker."""
    partitions: int = 1


class Lots:
    """Chooses a place by its weight: each has as many numbers below ``end`` as its weight has thousandths."""

    __slots__ = ("_places", "_unit", "end")

    def __init__(self, weights: Sequence[float]) -> None:
        thousandths = [round(weight * 1000) for weight in weights]
        self.end = sum(thousandths)
        self._unit = gcd(*thousandths)
        self._places: list[int] = []
        for place, count in enumerate(thousandths):
            self._places += [place] * (count // self._unit)

    def place(self, number: int) -> int:
        """Return the place that a number stands for."""
        return self._places[number // self._unit]
