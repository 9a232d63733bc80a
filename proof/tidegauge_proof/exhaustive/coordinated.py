"""Common parts of explored worlds with a coordinator: bounds, states, the broker's faults, and the search.

A state is the coordinator with its log and checker, its clients, the messages on their way, and how much of the bounds
is used. Breadth first, each state once; from each the faults end and everything must come to rest as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from tidegauge_proof.exhaustive.breadth_first import Exploration, Found
from tidegauge_proof.exhaustive.frozen import DIGEST_BYTES
from tidegauge_proof.exhaustive.machines import Cell, Machines
from tidegauge_proof.simulator.checker import Violation

GROUP, TRANSACTION = "group", "transaction"
Action = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorBounds:
    """How far schedules may go; each is a number of occurrences in one schedule.

    Attributes:
        crashes: processes of the coordinator that die.
        resignations: leaderships that it loses while its process lives on.
        failures: appends that are refused or time out; and markers that fail.
        losses: requests that a client gives up, which may arrive late; and requests for markers whose connection ends.
        duplicates: requests that arrive once more.
        ticks: steps of time.
        static: members with a group instance id.
        commits: of offsets.
        leaves: of members, for good.
        restarts: of clients' processes; of producers also those after a fatal error.
        transactions: of each producer.
        producers: with the transactional id; the second fences the first, and the other way round.
    """

    world: str = GROUP
    crashes: int = 0
    resignations: int = 0
    failures: int = 0
    losses: int = 0
    duplicates: int = 0
    ticks: int = 0
    static: int = 0
    commits: int = 0
    leaves: int = 0
    restarts: int = 0
    transactions: int = 1
    producers: int = 2


class Used(NamedTuple):
    """How much of the bounds a schedule has used."""

    crashes: int = 0
    resignations: int = 0
    failures: int = 0
    losses: int = 0
    duplicates: int = 0
    ticks: int = 0
    commits: int = 0
    leaves: int = 0
    restarts: int = 0

    def plus(self, name: str) -> Used:
        """Return with one more."""
        return self._replace(**{name: getattr(self, name) + 1})


@dataclass(slots=True, eq=False)
class Message:
    """A message on its way; there is one object of each.

    Attributes:
        number: in the order in which they were found.
        call: the request, or the one that this responds to.
        result: of a response.
    """

    number: int
    key: bytes
    call: Any
    result: Any = None


class Messages:
    """All messages that were ever on their way."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, str], Message] = {}

    def of(self, call: Any, result: Any = None) -> Message:
        """Return the message of a request or a response."""
        name = call, repr(result)
        message = self._known.get(name)
        if message is None:
            key = blake2b(repr(name).encode(), digest_size=DIGEST_BYTES).digest()
            message = self._known[name] = Message(len(self._known), key, call, result)
        return message


class WorldState(NamedTuple):
    """A state of the world; messages are in the order of their numbers."""

    server: Cell
    clients: tuple[Cell, ...]
    requests: tuple[Message, ...]
    responses: tuple[Message, ...]
    used: Used

    @property
    def core(self) -> tuple[Any, ...]:
        """All but what of the bounds is used."""
        return self[:4]

    def key(self) -> bytes:
        """Return a hash that is the same in every process."""
        parts = [self.server.key, *(client.key for client in self.clients)]
        parts += sorted(message.key for message in self.requests)
        parts += [b"|", *sorted(message.key for message in self.responses), repr(tuple(self.used)).encode()]
        return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def with_message(messages: tuple[Message, ...], added: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with others."""
    return tuple(sorted((*messages, *added), key=lambda one: one.number))


def without_message(messages: tuple[Message, ...], taken: Message) -> tuple[Message, ...]:
    """Return the messages without one; a copy of it stays."""
    place = messages.index(taken)
    return messages[:place] + messages[place + 1 :]


class CoordinatedWorld(Protocol):
    """A world as the search sees it."""

    machines: Machines

    def begin(self) -> WorldState:
        """Return the first state."""
        ...

    def actions(self, state: WorldState) -> Iterator[Action]:
        """Return what may happen next."""
        ...

    def apply(self, state: WorldState, action: Action) -> WorldState:
        """Return what comes of it."""
        ...

    def judge(self, state: WorldState) -> None:
        """Raise a Violation if a state breaks an invariant by itself."""
        ...

    def towards_rest(self, state: WorldState) -> tuple[Action, WorldState] | None:
        """Return the next step without faults; None when all is at rest and in order."""
        ...

    def words_of(self, action: Action) -> str:
        """Return what an action does, in words."""
        ...


_REST_STEPS = 2_000
_OWN = "Own"
"""An assertion of the code under test."""


def broker_actions(state: WorldState, bounds: CoordinatorBounds) -> Iterator[Action]:
    """Return what may happen to the coordinator's broker and its log."""
    facts, used = state.server.facts, state.used
    if facts.leads:
        if facts.uncommitted:
            yield ("commit",)
        if used.failures < bounds.failures:
            if facts.awaits:
                yield ("time out",)
            if not facts.refuses:
                yield ("refuse",)
        if used.resignations < bounds.resignations:
            for kept in range(facts.uncommitted + 1):
                yield ("resign", kept)
    else:
        yield ("elect",)
    if facts.is_loading:
        yield ("load",)
    if facts.is_running:
        if used.ticks < bounds.ticks:
            yield ("tick",)
        if used.crashes < bounds.crashes:
            for kept in range(facts.uncommitted + 1):
                yield ("die", kept)


USES = {
    "time out": "failures",
    "refuse": "failures",
    "resign": "resignations",
    "tick": "ticks",
    "die": "crashes",
    "give up": "losses",
    "duplicate": "duplicates",
    "commit offset": "commits",
    "leave": "leaves",
    "restart": "restarts",
    "mark twice": "duplicates",
    "lose markers": "losses",
    "lose marked": "losses",
    "fail markers": "failures",
}
"""The bound that an action uses."""

BROKER_WORDS = {
    "commit": "the next batch of the log is committed",
    "time out": "the oldest append times out; its batch stays in the log",
    "refuse": "the next append will be refused",
    "resign": "the coordinator loses its leadership; {0} uncommitted batches reach the next leader",
    "die": "the coordinator's process dies; {0} uncommitted batches reach the next leader",
    "elect": "the broker is elected, and begins to load",
    "load": "the load is read to its end",
    "tick": "time passes",
}


class CoordinatorExplorer:
    """One exploration of a world with a coordinator.

    Attributes:
        result: the findings so far.
    """

    def __init__(self, world: CoordinatedWorld, *, max_states: int = 10_000_000, fail_fast: bool = False) -> None:
        self._world = world
        self._max_states, self._fail_fast = max_states, fail_fast
        self._numbers: dict[WorldState, int] = {}
        self._parents: list[int] = []
        self._by: list[Action] = []
        self._broken: list[bool] = []
        self._calm: set[tuple[Any, ...]] = set()
        self._digest = 0
        self.result = Exploration()

    @property
    def reached(self) -> int:
        """How many states have been reached so far."""
        return len(self._numbers)

    def run(self) -> Exploration:
        """Explore until there is nothing new; an interruption leaves the findings in ``result``."""
        self.result.complete = False
        first = self._world.begin()
        self._enter(first, -1, ())
        frontier = [first]
        stopped = False
        try:
            while frontier and not stopped:
                frontier, stopped = self._level(frontier)
                self.result.depth += bool(frontier)
            if not (self._fail_fast and self.result.found):
                self._end_faults()
            self.result.complete = not stopped and not (self._fail_fast and self.result.found)
        finally:
            self.result.states = self.reached
            self.result.digest = self._digest.to_bytes(DIGEST_BYTES, "big").hex()
            self.result.executed = self._world.machines.executed
        return self.result

    def _level(self, frontier: list[WorldState]) -> tuple[list[WorldState], bool]:
        after: list[WorldState] = []
        numbers, world = self._numbers, self._world
        for state in frontier:
            for action in world.actions(state):
                reached = None
                try:
                    reached = world.apply(state, action)
                    if reached == state:
                        continue
                    self.result.transitions += 1
                    if reached in numbers:
                        continue
                    if len(numbers) >= self._max_states:
                        return after, True
                    self._enter(reached, numbers[state], action)
                    world.judge(reached)
                except (Violation, AssertionError) as broken:
                    if reached is not None:
                        self._broken[numbers[reached]] = True
                    if self._note(broken, numbers[state], [action], 1) and self._fail_fast:
                        return after, True
                    continue
                after.append(reached)
        return after, False

    def _enter(self, state: WorldState, parent: int, action: Action) -> None:
        self._numbers[state] = len(self._numbers)
        self._parents.append(parent)
        self._by.append(action)
        self._broken.append(False)
        self._digest ^= int.from_bytes(state.key(), "big")

    def _end_faults(self) -> None:
        """Let the faults end in each state: what follows must come to rest in order."""
        for state, number in self._numbers.items():
            if self._broken[number]:
                continue
            path: list[Action] = []
            try:
                self._rest(state, path)
            except (Violation, AssertionError) as problem:
                if self._note(problem, number, path, 0) and self._fail_fast:
                    return

    def _rest(self, state: WorldState, path: list[Action]) -> None:
        cores: list[tuple[Any, ...]] = []
        now = state
        while now.core not in self._calm:
            cores.append(now.core)
            if len(path) > _REST_STEPS:
                raise Violation("Rest", f"nothing comes to rest in {_REST_STEPS} steps")
            step = self._world.towards_rest(now)
            if step is None:
                break
            path.append(step[0])
            now = step[1]
        self._calm.update(cores)

    def _note(self, broken: Exception, number: int, further: list[Action], within: int) -> bool:
        """Note a violation; return whether it is the first of this invariant."""
        invariant = broken.invariant if isinstance(broken, Violation) else _OWN
        if any(found.invariant == invariant for found in self.result.found):
            return False
        schedule = self._schedule_to(number)
        self.result.found.append(Found(invariant, [*schedule, *further], str(broken), len(schedule) + within))
        return True

    def _schedule_to(self, number: int) -> list[Action]:
        schedule = []
        while self._parents[number] >= 0:
            schedule.append(self._by[number])
            number = self._parents[number]
        return schedule[::-1]


def words_of(world: CoordinatedWorld, found: Found) -> list[str]:
    """Return a schedule in words: its steps, and the ones after the faults."""
    lines = [world.words_of(action) for action in found.schedule]
    if found.steps < len(lines):
        lines.insert(found.steps, "here the faults end")
    return lines
