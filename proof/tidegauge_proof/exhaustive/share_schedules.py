"""Every schedule of a small share group (KIP-932): two members, a few records, changes of the leader.

The share partitions and the decisions of the share coordinator are the brokers' own. A write of a leader is stored,
stored without a response, or not stored. The former leader goes on writing what it had decided. All locks of a leader
end at once, at any moment. The states are explored breadth first, so that the first schedule that breaks an
invariant is a shortest one; states that differ in the names of the members alone count as one.

The invariants are S1 to S7 of ``tidegauge_proof.simulator.shares.share_checker``.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import (
    InitializeShareState,
    ReadShareState,
    ShareStateRequest,
    ShareStateResult,
    WriteShareState,
)
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription, Topics
from tidegauge_broker.coordinator.share_state.deciding import Given, decide
from tidegauge_broker.coordinator.share_state.state import ShareState, replayed
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import LogBatch, Read, Wanted
from tidegauge_broker.share.effects import Effect, FindStartOffset, ReadState, Respond, WriteState
from tidegauge_broker.share.partition import PartitionState, SharePartition
from tidegauge_broker.share.settings import AcquireMode, ShareSettings
from tidegauge_broker.share.states import Delivery
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.shares.leaders import KEY, LOCK_MS

MEMBERS = ("a", "b")
ACCEPT, RELEASE = 1, 2
DELIVERY_COUNT_LIMIT = 2
_UPDATES_PER_SNAPSHOT = 2
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class ShareBounds:
    """How far schedules may go.

    Attributes:
        records: in the log, each a batch of its own.
        leader_changes: how many.
        lock_ends: how often all locks of a leader end, at most.
        failures: how many writes are lost, or their responses, at most.
    """

    records: int = 1
    leader_changes: int = 1
    lock_ends: int = 1
    failures: int = 1


@dataclass(slots=True)
class ShareExploration:
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


class _Leader:
    """A share partition, the writes that wait, and what the checker knows of its records."""

    def __init__(self, epoch: int) -> None:
        settings = ShareSettings(LOCK_MS, DELIVERY_COUNT_LIMIT, auto_offset_reset="earliest")
        self.core = SharePartition(epoch, settings)
        self.writes: list[WriteState] = []
        self.counts: dict[int, int] = {}
        self.holders: dict[int, str] = {}
        self.final: dict[Any, tuple[int, ...]] = {}
        """The offsets that a request accepts, by its token, until its response."""


@dataclass(slots=True)
class _State:
    """A state of the small cluster."""

    kept: ShareState | None = None
    leaders: list[_Leader] = field(default_factory=list[_Leader])
    done: dict[int, int] = field(default_factory=dict[int, int])
    tokens: int = 0
    lock_ends: int = 0
    failures: int = 0


Step = tuple[str, Callable[[_State], bool]]
"""An action in words, and what does it to a state; it returns whether it has changed anything."""


class ShareExplorer:
    """One exploration.

    Args:
        bounds: how far schedules may go.
    """

    def __init__(self, bounds: ShareBounds) -> None:
        self._bounds = bounds
        self._log = [LogBatch(offset, offset) for offset in range(bounds.records)]
        self._topics = Topics()
        self._topics.change({"t": TopicDescription("t", KEY.topic_id, ((),))})

    def explore(self) -> ShareExploration:
        """Go through all states; the first violation ends it."""
        result = ShareExploration()
        first = _State()
        self._ask(first, InitializeShareState(KEY, 1))
        self._elect(first)
        seen = {_key(first)}
        waiting: deque[tuple[bytes, _Path]] = deque([(self._packed(first), None)])
        while waiting:
            packed, path = waiting.popleft()
            result.states += 1
            for words, act in self._steps(self._unpacked(packed)):
                result.transitions += 1
                after = self._unpacked(packed)
                try:
                    if not act(after):
                        continue
                except Violation as broken:
                    result.violation, result.schedule = broken, (*_schedule(path), words)
                    return result
                key = _key(after)
                if key not in seen:
                    seen.add(key)
                    waiting.append((self._packed(after), (path, words)))
        return result

    @staticmethod
    def _packed(state: _State) -> bytes:
        """Return a state as bytes, which are smaller and quicker to copy."""
        return pickle.dumps(state, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def _unpacked(packed: bytes) -> _State:
        state: _State = pickle.loads(packed)  # noqa: S301 - bytes of this process
        return state

    # Actions

    def _steps(self, state: _State) -> Iterator[Step]:
        bounds = self._bounds
        for place, leader in enumerate(state.leaders):
            name = f"leader {place + 1}"
            if place == len(state.leaders) - 1 and leader.core.state is PartitionState.ACTIVE:
                yield from self._of_members(state, place, name)
                if state.lock_ends < bounds.lock_ends and leader.core.next_deadline_ms() is not None:
                    yield f"the locks of {name} end", partial(self._end_locks, place)
            if leader.writes:
                yield f"{name} writes", partial(self._write, place, is_stored=True, is_heard=True)
                if state.failures < bounds.failures:
                    yield (
                        f"{name} writes and hears nothing",
                        partial(self._write, place, is_stored=True, is_heard=False),
                    )
                    yield f"a write of {name} is lost", partial(self._write, place, is_stored=False, is_heard=False)
        if len(state.leaders) <= bounds.leader_changes:
            yield "another leader is elected", self._elect

    def _of_members(self, state: _State, place: int, name: str) -> Iterator[Step]:
        """Yield what members may do at the leader: one takes a record, or says something of one that it has."""
        leader = state.leaders[place]
        if leader.core.can_acquire() and leader.core.next_fetch_offset() < self._bounds.records:
            for member in MEMBERS:
                yield f"{member} fetches from {name}", partial(self._fetch, place, member)
        for offset, member in leader.holders.items():
            for what, kind in (("accepts", ACCEPT), ("releases", RELEASE)):
                yield f"{member} {what} {offset} at {name}", partial(self._acknowledge, place, member, offset, kind)

    def _elect(self, state: _State) -> bool:
        leader = _Leader(len(state.leaders) + 1)
        state.leaders.append(leader)
        self._take(state, leader, leader.core.initialize())
        return True

    def _fetch(self, place: int, member: str, state: _State) -> bool:
        leader = state.leaders[place]
        core = leader.core
        offset = core.next_fetch_offset()
        batches = [one for one in self._log if one.last_offset >= offset]
        wanted = Wanted(1, 1, AcquireMode.RECORD_LIMIT)
        acquired = core.acquire(member, Read(offset, batches), wanted, 0)
        for one in acquired:
            for found in range(one.first_offset, one.last_offset + 1):
                self._delivered(state, leader, found, member, one.delivery_count)
        return bool(acquired)

    @staticmethod
    def _delivered(state: _State, leader: _Leader, offset: int, member: str, count: int) -> None:
        if offset in leader.holders:
            raise Violation("S1", f"{offset} is given to {member}, and {leader.holders[offset]} has it")
        if state.done.get(offset, leader.core.leader_epoch + 1) <= leader.core.leader_epoch:
            raise Violation("S2", f"{offset} is delivered again, after it was done")
        before = leader.counts.get(offset)
        if before is not None and count != before + 1:
            raise Violation("S3", f"delivery {count} of {offset} follows {before}")
        if count > DELIVERY_COUNT_LIMIT:
            raise Violation("S4", f"this is delivery {count} of {offset}")
        leader.counts[offset], leader.holders[offset] = count, member

    def _acknowledge(self, place: int, member: str, offset: int, kind: int, state: _State) -> bool:
        leader = state.leaders[place]
        state.tokens += 1
        token = state.tokens
        is_below = offset < leader.core.window.start_offset
        leader.final[token] = (offset,) if kind == ACCEPT and not is_below else ()
        effects = leader.core.acknowledge(token, member, [Acknowledgement(offset, offset, (kind,))], 0)
        self._take(state, leader, effects)
        refused = any(isinstance(one, Respond) and one.error is not ErrorCode.NONE for one in effects)
        return not refused

    def _end_locks(self, place: int, state: _State) -> bool:
        leader = state.leaders[place]
        state.lock_ends += 1
        leader.holders.clear()
        self._take(state, leader, leader.core.expire(LOCK_MS))
        return True

    def _write(self, place: int, state: _State, *, is_stored: bool, is_heard: bool) -> bool:
        leader = state.leaders[place]
        write = leader.writes.pop(0)
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if is_stored:
            before = -1 if state.kept is None else state.kept.start_offset
            result = self._ask(state, _request_of(write))
            if result.error is ErrorCode.NONE and write.leader_epoch < len(state.leaders):
                raise Violation("S7", f"epoch {write.leader_epoch} writes after epoch {len(state.leaders)} has read")
            if state.kept is not None and state.kept.start_offset < before:
                raise Violation("S5", f"the start offset falls from {before} to {state.kept.start_offset}")
            error = result.error if is_heard or result.error is not ErrorCode.NONE else error
        state.failures += not is_heard
        self._take(state, leader, leader.core.state_written(write.write_id, error))
        return True

    # Effects

    def _take(self, state: _State, leader: _Leader, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ReadState):
                found = self._ask(state, ReadShareState(KEY, effect.leader_epoch))
                self._take(
                    state,
                    leader,
                    leader.core.state_read(
                        found.error, found.message, found.state_epoch, found.start_offset, found.batches
                    ),
                )
            elif isinstance(effect, FindStartOffset):
                self._take(state, leader, leader.core.start_offset_found(ErrorCode.NONE, 0))
            elif isinstance(effect, WriteState):
                leader.writes.append(effect)
            elif isinstance(effect, Respond):
                for offset in leader.final.pop(effect.token, ()):
                    if effect.error is ErrorCode.NONE:
                        state.done.setdefault(offset, leader.core.leader_epoch)
        # A record whose transition has begun, or was taken back, is with the member that the core says.
        leader.holders = dict(_held(leader.core))

    def _ask(self, state: _State, request: ShareStateRequest) -> ShareStateResult:
        decision = decide(request, Given(state.kept, self._topics, 0, _UPDATES_PER_SNAPSHOT))
        if decision.has_change and decision.change is not None:
            state.kept = replayed(state.kept, decision.change, _UPDATES_PER_SNAPSHOT)
        return decision.result


_Path = tuple[Any, str] | None
"""The path to a state, and the last action; None: there was none."""


def _schedule(path: _Path) -> list[str]:
    """Return the actions of a path, from the first on."""
    actions: list[str] = []
    while path is not None:
        path, words = path
        actions.append(words)
    return actions[::-1]


def _request_of(write: WriteState) -> ShareStateRequest:
    return WriteShareState(
        KEY, write.state_epoch, write.leader_epoch, write.start_offset, write.complete_count, write.batches
    )


def _held(core: SharePartition) -> Iterator[tuple[int, str]]:
    for batch in core.window.in_flight:
        for first, last, delivery in batch.runs():
            if delivery.member_id is not None:
                yield from ((offset, delivery.member_id) for offset in range(first, last + 1))


def _key(state: _State) -> bytes:
    """Return a digest of a state: of the smaller form under the members' two names."""
    forms = (repr(_form(state, names)) for names in ({}, {"a": "b", "b": "a"}))
    return hashlib.blake2b(min(forms).encode(), digest_size=_DIGEST_BYTES).digest()


def _form(state: _State, names: dict[str, str]) -> Hashable:
    """Return a state as values.

    Of a former leader only its writes and responses count.
    """
    *former, leader = state.leaders
    return (
        None if state.kept is None else replace(state.kept, batches=_plain(state.kept.batches)),
        tuple((one.core.state.value, _waiting(one), _awaited(one)) for one in former),
        _form_of_leader(leader, names),
        *(tuple(sorted(state.done.items())), state.lock_ends, state.failures),
    )


def _form_of_leader(leader: _Leader, names: dict[str, str]) -> Hashable:
    window = leader.core.window
    gap = None if window.gap is None else (window.gap.first_offset, window.gap.end_offset)
    records = tuple(
        (batch.first_offset, batch.is_split, first, last, *_form_of(delivery, names))
        for batch in window.in_flight
        for first, last, delivery in batch.runs()
    )
    return (
        *(leader.core.state.value, window.start_offset, window.end_offset, window.complete_count),
        *(window.looks_for_available, gap, records, _waiting(leader)),
        *(tuple(sorted(leader.counts.items())), _awaited(leader)),
    )


def _waiting(leader: _Leader) -> Hashable:
    """Return the writes that wait, in their order."""
    return tuple(
        (one.start_offset, one.complete_count, _plain(one.batches), leader.core._writes.get(one.write_id) is None)  # noqa: SLF001 - a proof looks inside
        for one in leader.writes
    )


def _awaited(leader: _Leader) -> Hashable:
    """Return the offsets that requests without a response accept."""
    return tuple(sorted(leader.final.values()))


def _plain(batches: Sequence[Any]) -> tuple[Any, ...]:
    """Return batches as plain numbers."""
    return tuple(tuple(map(int, one)) for one in batches)


def _form_of(delivery: Delivery, names: dict[str, str]) -> tuple[Hashable, ...]:
    lock, before = delivery.lock, delivery._before  # noqa: SLF001 - a proof looks inside
    return (
        *(int(delivery.state), delivery.delivery_count, names.get(delivery.member_id or "", delivery.member_id)),
        None if lock is None else (lock.has_expired, lock.is_cancelled),
        None
        if before is None
        else (int(before.state), before.delivery_count, names.get(before.member_id or "", before.member_id)),
        delivery.is_archived_for_good,
    )
