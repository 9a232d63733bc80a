"""Breadth first through all states of a small quorum: the first schedule that breaks an invariant is a shortest one.

The same bounds always give the same states, transitions and ``digest``.
"""

from __future__ import annotations

from array import array

from tidegauge_proof.exhaustive.explorer import Exploration, Found
from tidegauge_proof.exhaustive.frozen import DIGEST_BYTES
from tidegauge_proof.exhaustive.quorum_small import Action, Call, QuorumState, SmallQuorum
from tidegauge_proof.simulator.checker import Violation

_RECENT = 200_000
"""Maximum number of states of a level that are known without their hashes."""
_WORDS = {
    "timeout": "a timer of node {0} runs out",
    "flush": "a flush of node {0} completes",
    "begin": "node {0} makes itself known again",
    "propose": "node {0} is given records",
    "kill": "the process of node {0} dies and starts again",
    "lose power": "node {0} loses power, keeps {1} of the batches that were not flushed, and starts again",
    "add": "node {0} is asked to add node {1}",
    "remove": "node {0} is asked to remove node {1}",
}
_WORDS_OF_CALLS = {
    "deliver": "{0} of node {1} arrives at node {2}",
    "deliver in vain": "{0} of node {1} arrives at node {2}, and the response is lost",
    "respond": "{0} of node {2} arrives at node {1}",
    "lose": "node {1} gives {0} of or to node {2} up",
    "fail": "node {1} learns that node {2} will not respond",
}


class QuorumExplorer:
    """One exploration.

    Args:
        quorum: the quorum with its bounds.
        max_states: where to stop.
        fail_fast: stop at the first violation.

    Attributes:
        result: the findings so far; its counts are final at the end or at an interruption.
    """

    def __init__(self, quorum: SmallQuorum, *, max_states: int = 10_000_000, fail_fast: bool = False) -> None:
        self._quorum, self._max_states, self._fail_fast = quorum, max_states, fail_fast
        self._numbers: dict[bytes, int] = {}
        self._parents = array("q")
        self._actions: dict[Action, int] = {}
        self._by = array("q")
        self._digest = 0
        self.result = Exploration()

    @property
    def reached(self) -> int:
        """How many states have been reached so far."""
        return len(self._numbers)

    def run(self) -> Exploration:
        """Explore until there is nothing new; an interruption leaves the findings in ``result``."""
        first = self._quorum.begin()
        self._enter(self._quorum.key(first), -1, ())
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
            self.result.executed = self._quorum.machines.executed
        return self.result

    def _level(self, frontier: list[tuple[int, QuorumState]]) -> tuple[list[tuple[int, QuorumState]], bool]:
        quorum, numbers = self._quorum, self._numbers
        after: list[tuple[int, QuorumState]] = []
        recent: set[QuorumState] = set()
        for number, state in frontier:
            for action in quorum.actions(state):
                try:
                    reached = quorum.apply(state, action)
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
                key = quorum.key(reached)
                if key in numbers:
                    continue
                if len(numbers) >= self._max_states:
                    return after, True
                after.append((self._enter(key, number, action), reached))
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
        schedule = [*self.schedule_to(number), action]
        self.result.found.append(Found(broken.invariant, schedule, str(broken), len(schedule)))
        return True

    def schedule_to(self, number: int) -> list[Action]:
        """Return a shortest schedule to a state, by its number."""
        actions = list(self._actions)
        schedule: list[Action] = []
        while self._parents[number] >= 0:
            schedule.append(actions[self._by[number]])
            number = self._parents[number]
        return schedule[::-1]


def words_of(action: Action) -> str:
    """Return a step in words, with the names of the state really reached."""
    kind, first = action[0], action[1]
    if isinstance(first, Call):
        return _WORDS_OF_CALLS[kind].format(type(first.message.value).__name__, first.sender, first.to)
    if kind == "deliver late":
        return f"a late {type(action[2].value).__name__} arrives at node {first}"
    return _WORDS[kind].format(*action[1:])
