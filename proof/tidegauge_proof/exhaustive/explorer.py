"""Breadth first through all states: the first schedule that breaks an invariant is a shortest one.

A state is known by its hash: the hashes of its parts, put together. Partition epochs count by their order alone. Where
brokers differ in their names only (the models' controller), one hash stands for all of them, so that one of up to six
states is explored; the schedule leads to the state really reached. Nothing depends on time, chance or the order of a
dictionary: the same bounds give the same states, transitions and ``digest`` (all hashes of states, xored) in every run.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise, permutations

from tidegauge_proof.exhaustive.cluster import MODEL, Action, Bounds, Cluster, ClusterState
from tidegauge_proof.exhaustive.frozen import (
    DIGEST_BYTES,
    BrokerState,
    ControllerState,
    Naming,
    Shape,
    hashed,
    shape_of_broker,
    shape_of_controller,
    shape_of_mail,
    shape_of_net,
)
from tidegauge_proof.exhaustive.judge import Judge
from tidegauge_proof.exhaustive.memo import Memo
from tidegauge_proof.own_rules import OwnRules

_INVARIANT = re.compile(r"I\d+|WholeBatches")
"""How the core's assertions of its invariants begin."""

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


class Namer:
    """The hash of a state: the same for all states that differ in the brokers' names or the partition epochs only.

    Brokers are put in the order of what they are without names; only where two are alike all their orders are tried,
    and the smallest hash is taken.
    """

    def __init__(self, bounds: Bounds) -> None:
        ids = tuple(range(1, bounds.replicas + 1))
        orders = list(permutations(ids)) if bounds.controller == MODEL else [ids]
        self._places = [tuple(order.index(broker) for broker in ids) for order in orders]
        """For each naming: which broker, from 0, has each of the new names."""
        self._namings: dict[tuple[int, ...], Naming] = {
            places: (0, *order, -1) for places, order in zip(self._places, orders, strict=True)
        }
        self._ranks: dict[tuple[int, ...], bytes] = {}

    def key(self, state: ClusterState) -> bytes:
        """Return the hash."""
        shaped = [self._shaped(state, places) for places in self._candidates(state)]
        rest = hashed(state.used, (), None, _plain)[0] + hashed(state.committed, (), None, _plain)[0]
        return blake2b(min(shaped) + rest, digest_size=DIGEST_BYTES).digest()

    def _candidates(self, state: ClusterState) -> Sequence[tuple[int, ...]]:
        """Return the orders of brokers that may give the smallest hash."""
        if len(self._places) == 1:
            return self._places
        now: ControllerState = state.controller.value
        alone = [
            (hashed(cell, broker, None, _nameless)[0], broker == now.leader, broker in now.isr)
            for broker, cell in enumerate(state.brokers, 1)
        ]
        order = sorted(range(len(alone)), key=alone.__getitem__)
        if all(alone[one] != alone[other] for one, other in pairwise(order)):
            return (tuple(order),)
        wanted = [alone[place] for place in order]
        return [places for places in self._places if [alone[place] for place in places] == wanted]

    def _shaped(self, state: ClusterState, places: tuple[int, ...]) -> bytes:
        naming = self._namings[places]
        parts = [hashed(state.brokers[place], places, naming, shape_of_broker) for place in places]
        parts.append(hashed(state.controller, places, naming, shape_of_controller))
        parts.append(hashed(state.mail, places, naming, shape_of_mail))
        parts.append(hashed(state.net, places, naming, shape_of_net))
        versions = tuple([version for part in parts for version in part[1]])
        ranks = self._ranks.get(versions)
        if ranks is None:
            ranks = self._ranks[versions] = _ranks(versions)
        return b"".join([part[0] for part in parts]) + ranks


def _plain(value: object, _: object) -> Shape:
    return value, ()


def _nameless(state: BrokerState, _: object) -> Shape:
    """Return a cheap description of a broker that is independent of names."""
    replica = state.replica
    if replica is None:
        return state, ()
    leads, follows = replica.leads, replica.follows
    roles = (
        leads and (len(leads.isr), leads.pending is None, sorted(end for _, end in leads.remotes), leads.epoch_start),
        follows and follows[1:],
    )
    return (state[:7], replica.leader_epoch, replica.high_watermark, replica.epochs, roles), ()


def _ranks(versions: tuple[int, ...]) -> bytes:
    order = sorted(set(versions))
    return bytes(order.index(version) for version in versions)


class Explorer:
    """One exploration.

    Args:
        bounds: how far schedules may go.
        rule: the truncation rule, or rules of the caller.
        max_states: where to stop.
        fail_fast: stop at the first violation.
        acquits: another rule; then only what it survives by the same schedule counts as found.

    Attributes:
        result: the findings so far; its counts are final at the end or at an interruption.
    """

    def __init__(
        self,
        bounds: Bounds,
        rule: str | OwnRules,
        *,
        max_states: int = 10_000_000,
        fail_fast: bool = False,
        acquits: str | None = None,
    ) -> None:
        self._memo = Memo(bounds, rule)
        self._cluster = Cluster(bounds, self._memo)
        self._namer = Namer(bounds)
        self._judge = Judge()
        self._other = None if acquits is None else Cluster(bounds, Memo(bounds, acquits))
        self._max_states, self._fail_fast = max_states, fail_fast
        self._numbers: dict[bytes, int] = {}
        self._parents = array("q")
        self._actions: dict[Action, int] = {}
        self._by = array("q")
        self._digest = 0
        self.result = Exploration()

    def run(self) -> Exploration:
        """Explore until there is nothing new; an interruption leaves the findings in ``result``."""
        first = self._cluster.begin()
        self._enter(self._namer.key(first), -1, ())
        frontier = [(0, first)]
        stopped = False
        self.result.complete = False
        try:
            while frontier and not stopped:
                frontier, stopped = self._level(frontier)
                self.result.depth += bool(frontier)
            self.result.complete = not stopped
        finally:
            self._count()
        return self.result

    @property
    def reached(self) -> int:
        """How many states have been reached so far."""
        return len(self._numbers)

    def _count(self) -> None:
        result = self.result
        result.states = self.reached
        result.digest = self._digest.to_bytes(DIGEST_BYTES, "big").hex()
        result.executed = self._memo.executed

    def keys(self) -> set[bytes]:
        """Return the hashes of all states."""
        return set(self._numbers)

    def _level(self, frontier: list[tuple[int, ClusterState]]) -> tuple[list[tuple[int, ClusterState]], bool]:
        cluster, numbers, key_of, broken = self._cluster, self._numbers, self._namer.key, self._judge.broken
        after: list[tuple[int, ClusterState]] = []
        recent: set[ClusterState] = set()
        for number, state in frontier:
            for action in cluster.actions(state):
                try:
                    reached = cluster.apply(state, action)
                except AssertionError as problem:
                    name = _INVARIANT.match(str(problem))
                    if name is None:
                        raise
                    if self._note(name[0], number, action) and self._fail_fast:
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
                mine = self._enter(key, number, action)
                after.append((mine, reached))
                for invariant in broken(reached):
                    if self._note(invariant, number, action) and self._fail_fast:
                        return after, True
        return after, False

    def _enter(self, key: bytes, parent: int, action: Action) -> int:
        number = self._numbers[key] = len(self._numbers)
        self._parents.append(parent)
        self._by.append(self._actions.setdefault(action, len(self._actions)))
        self._digest ^= int.from_bytes(key, "big")
        return number

    def _note(self, invariant: str, number: int, action: Action) -> bool:
        """Note a violation; return whether it is the first of this invariant."""
        if any(found.invariant == invariant for found in self.result.found):
            return False
        schedule = [*self.schedule_to(number), action]
        if self._other is not None and not survives(self._other, self._judge, schedule):
            return False
        self.result.found.append(Found(invariant, schedule))
        return True

    def schedule_to(self, number: int) -> list[Action]:
        """Return a shortest schedule to a state; states count from 0 as found."""
        actions = list(self._actions)
        schedule = []
        while self._parents[number] >= 0:
            schedule.append(actions[self._by[number]])
            number = self._parents[number]
        return schedule[::-1]


def survives(cluster: Cluster, judge: Judge, schedule: Sequence[Action]) -> bool:
    """Whether a schedule can be played on a cluster, and no step of it breaks an invariant."""
    state = cluster.begin()
    for action in schedule:
        if action not in set(cluster.actions(state)):
            return False
        try:
            reached = cluster.apply(state, action)
        except AssertionError:
            return False
        if reached is None or judge.broken(reached):
            return False
        state = reached
    return True
