"""All states of a cluster, breadth first (``BreadthFirst``).

A state is known by its hash: the hashes of its parts, put together. Partition epochs count by their order alone. Where
brokers differ in their names only (the models' controller), one hash stands for all of them, so that one of up to six
states is explored; the schedule leads to the state really reached. Nothing depends on time, chance or the order of a
dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise, permutations

from tidegauge_proof.exhaustive.breadth_first import BreadthFirst, Found
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
from tidegauge_proof.simulator.checker import Violation

_INVARIANT = re.compile(r"I\d+|WholeBatches")
"""How the core's assertions of its invariants begin."""


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


class Explorer(BreadthFirst[ClusterState]):
    """One exploration.

    Args:
        bounds: how far schedules may go.
        rule: the truncation rule, or rules of the caller.
        max_states: where to stop.
        fail_fast: stop at the first violation.
        acquits: another rule; then only what it survives by the same schedule counts as found.
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
        super().__init__(max_states=max_states, fail_fast=fail_fast)
        self._memo = Memo(bounds, rule)
        self._cluster = Cluster(bounds, self._memo)
        self._judge = Judge()
        self._other = None if acquits is None else Cluster(bounds, Memo(bounds, acquits))
        self._namer = Namer(bounds)

    def _begin(self) -> ClusterState:
        return self._cluster.begin()

    def _possible(self, state: ClusterState) -> Iterable[Action]:
        return self._cluster.actions(state)

    def _apply(self, state: ClusterState, action: Action) -> ClusterState | None:
        try:
            return self._cluster.apply(state, action)
        except AssertionError as problem:
            name = _INVARIANT.match(str(problem))
            if name is None:
                raise
            raise Violation(name[0], "") from None

    def _key(self, state: ClusterState) -> bytes:
        return self._namer.key(state)

    def _broken(self, reached: ClusterState) -> Iterable[str]:
        return self._judge.broken(reached)

    def _executed(self) -> int:
        return self._memo.executed

    def _finding(self, broken: Violation, schedule: list[Action]) -> Found | None:
        if self._other is not None and not survives(self._other, self._judge, schedule):
            return None
        return Found(broken.invariant, schedule)


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
