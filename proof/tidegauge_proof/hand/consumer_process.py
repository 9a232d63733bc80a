"""A process with a consumer of a classic group: its membership, what it reads, what it commits.

Rules:
    1. It joins by itself, heartbeats every third of its session timeout, and after each assignment begins at the
       offsets that the group has committed, else at the first record (auto.offset.reset=earliest).
    2. It polls all the time but while it is busy. A busy one heartbeats and cannot rejoin; if it has not polled for
       max.poll.interval.ms, it leaves the group by itself (KIP-62).
    3. Auto-commit is a library's. At a poll (the Java client, kafka-python): what earlier polls have returned. In the
       background (librdkafka): all that the application got, whether it polls or not.
    4. A static member (KIP-345) is closed without leaving.
"""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    Heartbeat,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    SyncGroupResult,
)
from tidegauge.partition import partition_named
from tidegauge_proof.hand.client_process import REQUEST_TIMEOUT_MS, ClientProcess
from tidegauge_proof.hand.coordination import Call, Coordination
from tidegauge_proof.hand.group_names import OFFSETS
from tidegauge_proof.hand.member_requests import ask_for_member
from tidegauge_proof.hand.messages import CLIENT
from tidegauge_proof.hand.reading import read
from tidegauge_proof.simulator.groups.members import Member
from tidegauge_proof.simulator.memory_broker import AT

AUTO_COMMIT = ("none", "poll", "background")
"""Kinds of auto-commit by their number in a schedule (rule 3)."""
_AUTO_COMMIT_MS = 100
_MOST_REQUESTS = 8
_SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"


def ranged(members: tuple[JoinedMember, ...], partitions: int) -> tuple[tuple[str, bytes], ...]:
    """Return each member's partitions by the range assignor, as their indexes (RangeAssignor)."""
    ids = [one.member_id for one in sorted(members, key=lambda one: (one.group_instance_id or "", one.member_id))]
    each, more = divmod(partitions, len(ids))
    found, first = [], 0
    for place, member_id in enumerate(ids):
        count = each + (place < more)
        found.append((member_id, bytes(range(first, first + count))))
        first += count
    return tuple(found)


class _StoryMember(Member):
    """A member of a group of the story's, which reads ``orders``."""

    def __init__(self, name: str, group: str, instance_id: str | None, partitions: int) -> None:
        super().__init__(f"{name}-", instance_id, -1)
        self.group = group
        self.partitions = partitions

    def next_request(self) -> tuple[str, Any] | None:
        """Return the member's next request towards an assignment, if it needs one now."""
        if self.is_fenced or self.is_stable or "phase" in self.in_flight:
            return None
        joined = self.joined
        if joined is None:
            protocols = (Protocol("range", _SUBSCRIPTION),)
            return "phase", JoinGroup(
                self.group,
                self.member_id,
                self.session_ms,
                self.rebalance_ms,
                "consumer",
                protocols,
                self.instance_id,
                self.name.removesuffix("-"),
                "/127.0.0.1",
            )
        leads = joined.members and not joined.skip_assignment
        assignments = ranged(joined.members, self.partitions) if leads else ()
        about = (self.generation, self.member_id, self.instance_id)
        return "phase", SyncGroup(self.group, *about, "consumer", "range", assignments)

    def heartbeat(self) -> tuple[str, Any] | None:
        """Return a heartbeat, from the first JoinGroup that succeeded on."""
        if self.generation < 0 or self.is_fenced or "heartbeat" in self.in_flight:
            return None
        return "heartbeat", Heartbeat(self.group, self.generation, self.member_id, self.instance_id)


class ConsumerProcess(ClientProcess):
    """One consumer.

    Args:
        name: what the story calls it.
        group: its group.id.
        coordination: the cluster's coordinators.
        instance_id: of a static member.
        session_ms: session.timeout.ms.
        max_poll_ms: max.poll.interval.ms.
        auto_commit: a number of ``AUTO_COMMIT``.
        is_committed: whether isolation.level is read_committed.

    Attributes:
        got: the numbers of the records that the last step has brought.
    """

    def __init__(
        self,
        name: str,
        group: str,
        coordination: Coordination,
        *,
        instance_id: str | None,
        session_ms: int,
        max_poll_ms: int,
        auto_commit: int,
        is_committed: bool,
        partitions: int,
    ) -> None:
        super().__init__(name, coordination, REQUEST_TIMEOUT_MS)
        self.group = group
        self.member = _StoryMember(name, group, instance_id, partitions)
        self.member.session_ms, self.member.rebalance_ms = session_ms, max_poll_ms
        self.got: list[int] = []
        self._max_poll_ms = max_poll_ms
        self._auto_commit = AUTO_COMMIT[auto_commit]
        self._is_committed = is_committed
        self._is_busy = self._has_left = False
        self._polled_ms = self._beat_ms = self._committed_ms = self.world.now_ms
        self._positions: dict[int, int] | None = None
        self._consumed: dict[int, int] = {}
        self._is_fetching_offsets = False

    # Membership (rules 1 and 2)

    def act(self) -> None:
        """Poll, heartbeat, join and commit as far as that is due."""
        if not self.is_paused and not self.is_dead:
            self._poll()
            self._auto()
            for _ in range(_MOST_REQUESTS):
                wanted = None if self._is_busy or self._has_left else self.member.next_request()
                if wanted is None or not self._ask_as_member(*wanted):
                    break
            self._beat()
            self._find_positions()
        super().act()

    def _poll(self) -> None:
        now_ms = self.world.now_ms
        if not self._is_busy:
            self._polled_ms = now_ms
        elif now_ms - self._polled_ms >= self._max_poll_ms and not self._has_left:
            self._has_left = True
            self.leave()

    def _beat(self) -> None:
        is_due = self.world.now_ms - self._beat_ms >= self.member.session_ms // 3
        wanted = self.member.heartbeat() if is_due and not self._has_left else None
        if wanted is not None:
            self._beat_ms = self.world.now_ms
            self._ask_as_member(*wanted)

    def _ask_as_member(self, kind: str, request: Any) -> bool:
        def responded(result: Any) -> None:
            if isinstance(result, SyncGroupResult) and self.member.is_stable:
                self._positions = None
            self.act()

        return ask_for_member(
            self.coordination, self.member, kind, request, responded, lambda: not (self.is_dead or self.is_paused)
        )

    def leave(self) -> None:
        """Leave the group in order, unless it is a static member (rule 4)."""
        member = self.member
        if member.instance_id is None and member.member_id:
            request = LeaveGroup(self.group, (LeavingMember(member.member_id),))
            self.coordination.ask(OFFSETS, Call(CLIENT, request, lambda _: None))
        session, rebalance = member.session_ms, member.rebalance_ms
        member.restart()
        member.session_ms, member.rebalance_ms = session, rebalance
        self._positions = None

    def _find_positions(self) -> None:
        """Begin at the committed offsets after an assignment."""
        member = self.member
        if not member.is_stable or self._positions is not None or self._is_fetching_offsets or not member.assignment:
            return
        self._is_fetching_offsets = True
        generation = member.generation
        mine = tuple(partition_named(AT.topic, one) for one in member.assignment)

        def done(result: Any) -> None:
            self._is_fetching_offsets = False
            errors = [result.error, *(one.error for one in result.offsets.values())]
            if member.generation == generation and all(error is ErrorCode.NONE for error in errors):
                self._positions = {at.partition: max(0, result.offsets[at].offset) for at in mine}
                self._consumed = {}
                self.act()

        def lost() -> None:
            self._is_fetching_offsets = False

        request = OffsetFetch(self.group, mine, require_stable=True)
        if not self.coordination.ask(OFFSETS, Call(CLIENT, request, done, lost)):
            lost()

    # Auto-commit (rule 3)

    def _auto(self) -> None:
        may = self._auto_commit == "background" or (self._auto_commit == "poll" and not self._is_busy)
        is_due = self.world.now_ms - self._committed_ms >= _AUTO_COMMIT_MS
        if may and is_due and self._consumed and self._positions is not None:
            self._committed_ms = self.world.now_ms
            request = self._commit_request()
            self._consumed = {}
            self.coordination.ask(OFFSETS, Call(CLIENT, request, lambda _: None))

    # Jobs

    async def consume(self, count: int, into: list[int], *, busy: bool) -> None:
        """Take the next records, as many as this, into a list; then be busy with them, or poll on."""
        self.got = into
        self._is_busy = self._has_left = False
        while len(self.got) < count:
            self.got += self._take(count - len(self.got))
            if len(self.got) < count:
                await self.sleep(100)
        self._is_busy, self._polled_ms = busy, self.world.now_ms

    def _take(self, most: int) -> list[int]:
        found: list[int] = []
        for index, position in (self._positions or {}).items() if self.member.is_stable else ():
            partition = self.coordination.partitions[partition_named(AT.topic, index)]
            leader = partition.state_now.leader
            if leader not in self.world.brokers or not self.world.is_up(leader):
                continue
            result = read(self.world, partition, leader, position, is_committed=self._is_committed)
            taken = result.records[: most - len(found)]
            if taken:
                assert self._positions is not None
                self._positions[index] = self._consumed[index] = taken[-1][0] + 1
                found += [number for _, number in taken]
        return found

    async def poll(self) -> None:
        """Poll again after long processing."""
        self._is_busy = self._has_left = False

    def _commit_request(self) -> OffsetCommit:
        member = self.member
        ones = tuple(OffsetToCommit(partition_named(AT.topic, at), offset) for at, offset in self._consumed.items())
        return OffsetCommit(self.group, ones, member.generation, member.member_id, member.instance_id)

    async def commit(self) -> None:
        """Commit the offsets after all that the consumer has got (commitSync)."""
        await self.ask(OFFSETS, self._commit_request())

    async def close(self) -> None:
        """Close the consumer: it leaves its group, and its process ends."""
        self.leave()
        self.is_dead = True
