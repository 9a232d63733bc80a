"""Where a simulated history gets its chance from: a seed, or a schedule that was recorded before.

A schedule is a list of steps, a step the numbers that were drawn in it. Because each step has its own numbers, one can
be taken out without changing what the others mean: so a long history that breaks a rule is made short. A number that
is missing is 0, which the actions take for "nothing special happens".
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Step = tuple[int, ...]
Schedule = list[Step]
Item = TypeVar("Item")

_FINE = 1_000_000


class Dice:
    """Draws numbers; ``step`` holds the current step's; ``is_recorded`` says that there is no seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._draw = None if seed is None else Random(seed).random
        self._recorded: Step = ()
        self.is_recorded = seed is None
        self.step: list[int] = []

    def begin(self, recorded: Step = ()) -> None:
        """Begin a new step; ``recorded`` are its numbers if there is no seed."""
        self.step = []
        self._recorded = recorded

    @property
    def is_spent(self) -> bool:
        """Whether all numbers of a recorded step were used."""
        return self.is_recorded and len(self.step) >= len(self._recorded)

    def below(self, end: int) -> int:
        """Draw a number from 0 to ``end - 1``."""
        draw = self._draw
        if draw is not None:
            number = int(draw() * end)
        else:
            place = len(self.step)
            number = self._recorded[place] % end if place < len(self._recorded) else 0
        self.step.append(number)
        return number

    def happens(self, probability: float) -> bool:
        """Whether something happens that does so with this probability."""
        draw = self._draw
        if draw is None:
            return self.below(_FINE) >= _FINE * (1 - probability)
        number = int(draw() * _FINE)
        self.step.append(number)
        return number >= _FINE * (1 - probability)

    def choose(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.below(len(items))] if len(items) > 1 else items[0]
