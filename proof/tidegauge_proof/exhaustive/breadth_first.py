"""Breadth first through all states of a world: the first schedule that breaks an invariant is a shortest one.

A state is known by its hash alone. The same bounds give the same states, transitions and ``digest`` (all hashes of
states, xored) in every run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tidegauge_proof.exhaustive.frozen import DIGEST_BYTES
from tidegauge_proof.simulator.checker import Violation

Action = tuple[Any, ...]
State = TypeVar("State", bound=Hashable)
_RECENT = 200_000
"""So many states of a level are known without their hashes: most transitions lead to one that was just reached."""


@dataclass(slots=True)
class Found:
    """A violation: the invariant, a shortest schedule that breaks it, and the checker's message, if any."""

    invariant: str
    schedule: list[Action]
    message: str = ""
    steps: int = 0
    """How many of them there are before the faults end; those after that are the way to rest (coordinated.py)."""


@dataclass(slots=True)
class Exploration:
    """The result of an exploration.

    Attributes:
        states: how many different ones were found.
        transitions: how many actions changed a state, into a known one or not.
        depth: steps of the longest of the shortest schedules to a state.
        complete: whether every state within the bounds was looked at; False where ``max_states`` or a first violation
            ended it.
        found: the invariants that were broken, in the order in which they were.
        digest: stands for the set of all states.
        executed: events executed by the core and the controller; all others were known.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    complete: bool = True
    found: list[Found] = field(default_factory=list)
    digest: str = ""
    executed: int = 0


class BreadthFirst(ABC, Generic[State]):
    """One exploration; a subclass has the world.

    Args:
        max_states: where to stop.
        fail_fast: stop at the first violation.

    Attributes:
        result: the findings so far; its counts are final at the end or at an interruption.
    """

    def __init__(self, *, max_states: int, fail_fast: bool) -> None:
        self._max_states, self._fail_fast = max_states, fail_fast
        self._numbers: dict[bytes, int] = {}
        self._parents = array("q")
        self._actions: dict[Action, int] = {}
        self._by = array("q")
        self._digest = 0
        self.result = Exploration()

    # The world

    @abstractmethod
    def _begin(self) -> State:
        """Return the first state."""

    @abstractmethod
    def _possible(self, state: State) -> Iterable[Action]:
        """Return the actions of a state."""

    @abstractmethod
    def _apply(self, state: State, action: Action) -> State | None:
        """Return the state after an action; None: it has none.

        Raises:
            Violation: the action breaks an invariant.
        """

    @abstractmethod
    def _key(self, state: State) -> bytes:
        """Return the hash of a state, of ``DIGEST_BYTES``."""

    @abstractmethod
    def _executed(self) -> int:
        """Return how many events the code under test has executed."""

    @abstractmethod
    def _finding(self, broken: Violation, schedule: list[Action]) -> Found | None:
        """Return what counts as found of a violation; None: nothing."""

    def _broken(self, reached: State) -> Iterable[str]:
        """Return the invariants that a new state breaks."""
        del reached
        return ()

    # The search

    def run(self) -> Exploration:
        """Explore until there is nothing new; an interruption leaves the findings in ``result``."""
        first = self._begin()
        self._enter(self._key(first), -1, ())
        frontier, stopped = [(0, first)], False
        self.result.complete = False
        try:
            while frontier and not stopped:
                frontier, stopped = self._level(frontier)
                self.result.depth += bool(frontier)
            self.result.complete = not stopped
        finally:
            self.result.states = self.reached
            self.result.digest = self._digest.to_bytes(DIGEST_BYTES, "big").hex()
            self.result.executed = self._executed()
        return self.result

    @property
    def reached(self) -> int:
        """How many states have been reached so far."""
        return len(self._numbers)

    def keys(self) -> set[bytes]:
        """Return the hashes of all states."""
        return set(self._numbers)

    def _level(self, frontier: list[tuple[int, State]]) -> tuple[list[tuple[int, State]], bool]:
        numbers, apply, key_of, broken_by = self._numbers, self._apply, self._key, self._broken
        after: list[tuple[int, State]] = []
        recent: set[State] = set()
        for number, state in frontier:
            for action in self._possible(state):
                try:
                    reached = apply(state, action)
                except Violation as broken:
                    if self._note(broken, number, action) and self._fail_fast:
                        return after, True
                    continue
                if reached is None or reached == state:
                    continue
                self.result.transitions += 1
                if reached in recent:
                    continue
                if len(recent) >= _RECENT:
                    recent.clear()
                recent.add(reached)
                key = key_of(reached)
                if key in numbers:
                    continue
                if len(numbers) >= self._max_states:
                    return after, True
                after.append((self._enter(key, number, action), reached))
                for invariant in broken_by(reached):
                    if self._note(Violation(invariant, ""), number, action) and self._fail_fast:
                        return after, True
        return after, False

    def _enter(self, key: bytes, parent: int, action: Action) -> int:
        number = self._numbers[key] = len(self._numbers)
        self._parents.append(parent)
        self._by.append(self._actions.setdefault(action, len(self._actions)))
        self._digest ^= int.from_bytes(key, "big")
        return number

    def _note(self, broken: Violation, number: int, action: Action) -> bool:
        """Note a violation; return whether it is the first of this invariant."""
        if any(found.invariant == broken.invariant for found in self.result.found):
            return False
        found = self._finding(broken, [*self.schedule_to(number), action])
        if found is None:
            return False
        self.result.found.append(found)
        return True

    def schedule_to(self, number: int) -> list[Action]:
        """Return a shortest schedule to a state; states count from 0 as found."""
        actions = list(self._actions)
        schedule: list[Action] = []
        while self._parents[number] >= 0:
            schedule.append(actions[self._by[number]])
            number = self._parents[number]
        return schedule[::-1]
