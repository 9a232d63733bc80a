"""Every schedule of a small consumer group (KIP-848): two members and a topic of two partitions.

The decisions are the coordinator's own. A member reads a partition from the response that gives it until it has revoked
it, which takes as long as the schedule wants. A response may be lost, and a session may end. A coordinator that dies
loses nothing but the response, since all of a group is in its records. The states are explored breadth first, so that
the first schedule that breaks an invariant is a shortest one.

The invariants are K1, K2 and K4 to K7 of ``tidegauge_proof.simulator.consumer_groups.consumer_checker``.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidegauge.consumer_groups import JOINING_EPOCH, LEAVING_EPOCH, ConsumerGroupHeartbeat
from tidegauge_broker.coordinator.consumer_group.heartbeats import Circumstances, beat
from tidegauge_broker.coordinator.consumer_group.image import Draft, GroupImage
from tidegauge_broker.coordinator.consumer_group.leaving import fence, leaving_member
from tidegauge_broker.coordinator.consumer_group.member import MemberState, partitions_of
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal
from tidegauge_broker.coordinator.consumer_group.targets import as_sets
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription, Topics
from tidegauge_proof.simulator.checker import Violation

MEMBERS = ("a", "b")
TOPIC_ID = bytes(15) + b"\1"
_DIGEST_BYTES = 16
_QUIET_ROUNDS = 8
Partitions = frozenset[tuple[bytes, int]]
_NONE: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class ConsumerBounds:
    """How far schedules may go.

    Attributes:
        partitions: of the topic.
        joins: how often members join, at most.
        ends: how often a member leaves or its session ends, at most.
        lost: how many responses are lost, at most.
    """

    partitions: int = 2
    joins: int = 3
    ends: int = 1
    lost: int = 1


@dataclass(slots=True)
class ConsumerExploration:
    """The result of an exploration.

    Attributes:
        states: how many were found.
        transitions: how many actions were tried.
        violation: the first one; None: every schedule holds.
        schedule: a shortest one that leads to it.
    """

    states: int = 0
    transitions: int = 0
    violation: Violation | None = None
    schedule: tuple[str, ...] = ()


@dataclass(slots=True)
class _Client:
    """A member's process.

    Attributes:
        epoch: of its last response; 0: it has not joined.
        assigned: partitions of its last response that had any.
        owned: partitions that it reads.
        says_all: whether its next heartbeat has all that it says of itself, as after a response that is lost.
    """

    epoch: int = JOINING_EPOCH
    assigned: Partitions = _NONE
    owned: Partitions = _NONE
    says_all: bool = True

    def reset(self) -> None:
        """Give all up, to join again."""
        self.epoch, self.assigned, self.owned, self.says_all = JOINING_EPOCH, _NONE, _NONE, True


@dataclass(slots=True)
class _State:
    """A state of the small group."""

    image: GroupImage
    clients: dict[str, _Client] = field(default_factory=lambda: {name: _Client() for name in MEMBERS})
    joins: int = 0
    ends: int = 0
    lost: int = 0


Step = tuple[str, Callable[[_State], bool]]
"""An action in words, and its function; that returns whether it has changed anything."""
_Path = tuple[Any, str] | None
"""The path to a state, and the last action; None: there was none."""


class ConsumerExplorer:
    """One exploration.

    Args:
        bounds: how far schedules may go.
    """

    def __init__(self, bounds: ConsumerBounds) -> None:
        self._bounds = bounds
        topics = Topics()
        topics.change({"t": TopicDescription("t", TOPIC_ID, ((),) * bounds.partitions)})
        self._met = Circumstances(topics, ("uniform", "range"), 1, 5_000, 0, 1_000, is_refresh_due=False)
        self._all = frozenset((TOPIC_ID, number) for number in range(bounds.partitions))

    def explore(self) -> ConsumerExploration:
        """Go through all states; the first violation ends it."""
        result = ConsumerExploration()
        first = _State(GroupImage("g"))
        seen = {_key(first)}
        waiting: deque[tuple[bytes, _Path]] = deque([(pickle.dumps(first), None)])
        while waiting:
            packed, path = waiting.popleft()
            result.states += 1
            try:
                self._check_quiet(pickle.loads(packed))  # noqa: S301 - bytes of this process
            except Violation as broken:
                result.violation, result.schedule = broken, _schedule(path)
                return result
            for words, act in self._steps(pickle.loads(packed)):  # noqa: S301 - likewise
                result.transitions += 1
                after: _State = pickle.loads(packed)  # noqa: S301 - likewise
                try:
                    if not act(after):
                        continue
                    self._check(after)
                except Violation as broken:
                    result.violation, result.schedule = broken, (*_schedule(path), words)
                    return result
                key = _key(after)
                if key not in seen:
                    seen.add(key)
                    waiting.append((pickle.dumps(after), (path, words)))
        return result

    # Actions

    def _steps(self, state: _State) -> Iterator[Step]:
        bounds = self._bounds
        for name, client in state.clients.items():
            if client.epoch == JOINING_EPOCH:
                if state.joins < bounds.joins:
                    yield f"{name} joins", partial(self._beat, name)
                    if state.lost < bounds.lost:
                        yield f"{name} joins and hears nothing", partial(self._beat, name, is_heard=False)
                continue
            yield f"{name} sends a heartbeat", partial(self._beat, name)
            if client.owned - client.assigned:
                yield f"{name} has revoked", partial(self._revoke, name)
            if state.lost < bounds.lost:
                yield f"{name} sends a heartbeat and hears nothing", partial(self._beat, name, is_heard=False)
            if state.ends < bounds.ends:
                yield f"{name} leaves", partial(self._leave, name)
                if name in state.image.members:
                    yield f"the session of {name} ends", partial(self._end, name)

    def _beat(self, name: str, state: _State, *, is_heard: bool = True) -> bool:
        client = state.clients[name]
        is_joining = client.epoch == JOINING_EPOCH
        owned = tuple(sorted(number for _, number in client.owned))
        request = ConsumerGroupHeartbeat(
            "g",
            name,
            client.epoch,
            rebalance_timeout_ms=300_000 if client.says_all else -1,
            topic_names=("t",) if client.says_all else None,
            owned=((TOPIC_ID, owned),) if owned else (),
        )
        state.joins += is_joining
        state.lost += not is_heard
        client.says_all = not is_heard
        draft: Draft = Draft(state.image)
        try:
            result = beat(draft, request, self._met).result
        except GroupRefusal:
            if is_heard:
                client.reset()
            return True
        state.image = draft.image
        if is_heard:
            client.epoch = result.member_epoch
            if result.assignment is not None:
                client.assigned = frozenset((of, number) for of, numbers in result.assignment for number in numbers)
                client.owned |= client.assigned
        return True

    @staticmethod
    def _revoke(name: str, state: _State) -> bool:
        client = state.clients[name]
        client.owned &= client.assigned
        return True

    def _leave(self, name: str, state: _State) -> bool:
        state.ends += 1
        state.clients[name].reset()
        draft: Draft = Draft(state.image)
        try:
            leaving_member(draft, ConsumerGroupHeartbeat("g", name, LEAVING_EPOCH))
        except GroupRefusal:
            return True
        fence(draft, [name], self._met.topics)
        state.image = draft.image
        return True

    def _end(self, name: str, state: _State) -> bool:
        state.ends += 1
        draft: Draft = Draft(state.image)
        fence(draft, [name], self._met.topics)
        state.image = draft.image
        return True

    # Invariants

    def _check(self, state: _State) -> None:
        image = state.image
        holders: dict[tuple[bytes, int], str] = {}
        for name, member in image.members.items():
            held = partitions_of(member.assigned) | partitions_of(member.pending_revocation)
            for one in held:
                if one in holders:
                    raise Violation("K1", f"{one} is of {holders[one]} and of {name}")
                holders[one] = name
            if not member.epoch <= image.assignment_epoch <= image.epoch:
                raise Violation("K2", f"{name} is in epoch {member.epoch} of {image.assignment_epoch}, {image.epoch}")
            is_there = member.state is MemberState.STABLE and member.epoch == image.assignment_epoch
            target = image.targets.get(name, ())
            wanted = frozenset((of, number) for of, numbers in target for number in numbers)
            if is_there and partitions_of(member.assigned) != wanted:
                raise Violation("K4", f"{name} is stable without its target")
        if image.members and image.assignment_epoch == image.epoch:
            targets = [of for name in image.members for of in as_sets(image.targets.get(name, ())).get(TOPIC_ID, ())]
            if sorted(targets) != sorted(number for _, number in self._all):
                raise Violation("K5", f"the target has {sorted(targets)}")
        self._check_readers(state)

    @staticmethod
    def _check_readers(state: _State) -> None:
        """Check K7, except for members that the group has removed or has in another incarnation."""
        readers: dict[tuple[bytes, int], str] = {}
        for name, client in state.clients.items():
            member = state.image.members.get(name)
            if member is None or client.epoch not in {member.epoch, member.previous_epoch}:
                continue
            for one in client.owned:
                if one in readers:
                    raise Violation("K7", f"{readers[one]} and {name} read {one}")
                readers[one] = name

    def _check_quiet(self, state: _State) -> None:
        """Check K6: members that send heartbeats and revoke at once come to own all partitions."""
        joined = [name for name, client in state.clients.items() if client.epoch != JOINING_EPOCH]
        for name in state.image.members.keys() - set(joined):
            self._end(name, state)
        for _ in range(_QUIET_ROUNDS):
            for name in joined:
                self._revoke(name, state)
                self._beat(name, state)
        owned = [one for name in joined for one in state.clients[name].owned]
        if joined and sorted(owned) != sorted(self._all):
            raise Violation("K6", f"after {_QUIET_ROUNDS} rounds {joined} own {sorted(owned)}")


def _schedule(path: _Path) -> tuple[str, ...]:
    """Return the actions of a path, from the first on."""
    actions: list[str] = []
    while path is not None:
        path, words = path
        actions.append(words)
    return tuple(actions[::-1])


def _key(state: _State) -> bytes:
    """Return a digest of a state."""
    image = state.image
    members = [
        (name, one.epoch, one.previous_epoch, int(one.state), _sorted(one.assigned), _sorted(one.pending_revocation))
        for name, one in image.members.items()
    ]
    clients = [(one.epoch, sorted(one.assigned), sorted(one.owned), one.says_all) for one in state.clients.values()]
    form = (
        *(image.epoch, image.assignment_epoch, members, sorted(image.targets.items()), sorted(image.owners.items())),
        *(image.members.bits, clients, state.joins, state.ends, state.lost),
    )
    return hashlib.blake2b(repr(form).encode(), digest_size=_DIGEST_BYTES).digest()


def _sorted(epochs: Any) -> list[Any]:
    return sorted((topic_id, sorted(partitions.items())) for topic_id, partitions in epochs.items())
