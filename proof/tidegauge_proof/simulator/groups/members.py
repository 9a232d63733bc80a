"""Members of a group, as Kafka's consumer behaves: what it sends in which state, and what a response makes it do.

A member has one JoinGroup or SyncGroup in flight at most, and one heartbeat and one commit beside it. It may give a
request up and send another; the old response, should it come, is ignored. The leader assigns partitions round robin, in
the order of the member ids, so that an assignment is disjoint and the same however often it is made.
Source: AbstractCoordinator and ConsumerCoordinator of Kafka's clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    GroupRequest,
    GroupResult,
    Heartbeat,
    HeartbeatResult,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResult,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    SyncGroupResult,
)
from tidegauge.partition import TopicPartition

GROUP = "g"
TOPIC = "t"
PARTITIONS = 4
SESSION_MS = 10_000
REBALANCE_MS = 20_000
LARGEST_MS = 2**31 - 1
LARGEST_SESSION_MS = 1_800_000
"""group.max.session.timeout.ms; for static members, which come again under their instance id."""
ODD_SESSIONS_MS = (6_000, 10_000, 12_000, 20_000)
"""Multiples of one another: several sessions, and phases, end in one turn of the timers."""
ODD_REBALANCES_MS = (0, 0, -1, 1, 6_000, REBALANCE_MS, LARGEST_MS, -LARGEST_MS - 1)
_SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(slots=True, eq=False)
class Call:
    """A request of a member, as often as it is sent: ``number`` tells calls apart, whoever made them."""

    number: int
    member: Member | None
    request: GroupRequest


def assignment_of(members: tuple[JoinedMember, ...]) -> tuple[tuple[str, bytes], ...]:
    """Return the partitions of every member as their indexes, one byte each."""
    ids = sorted(member.member_id for member in members)
    return tuple(
        (member_id, bytes(index for index in range(PARTITIONS) if index % len(ids) == place))
        for place, member_id in enumerate(ids)
    )


class Member:
    """One consumer, over its restarts.

    Attributes:
        name: of the client; the number of its process is a part of it.
        instance_id: of a static member.
        broker: whom it takes for the coordinator.
        is_fenced: another process has taken its instance id over; it ends.
        is_odd: each of its processes has timeouts of its own, some of them zero, negative or the largest.
    """

    def __init__(self, name: str, instance_id: str | None, broker: int) -> None:
        self.name = name
        self.instance_id = instance_id
        self.broker = broker
        self.process = 0
        self.is_odd = False
        self.session_ms, self.rebalance_ms = SESSION_MS, REBALANCE_MS
        self.is_fenced = False
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResult | None = None
        self.is_stable = False
        self.assignment = b""
        self.in_flight: dict[str, object] = {}

    def restart(self) -> None:
        """Begin a new process, which knows nothing of the old one but the configured instance id."""
        self.process += 1
        self._choose_timeouts()
        self.is_fenced = self.is_stable = False
        self.member_id, self.generation, self.joined, self.assignment = "", -1, None, b""
        self.in_flight = {}

    def begin_oddly(self) -> None:
        """Have this and all later processes choose odd timeouts, by their number and name alone."""
        self.is_odd = True
        self._choose_timeouts()

    def behave(self) -> None:
        """Have later processes choose timeouts with which a group comes to rest."""
        self.is_odd = False

    def _choose_timeouts(self) -> None:
        self.session_ms, self.rebalance_ms = SESSION_MS, REBALANCE_MS
        if self.is_odd:
            turn = 3 * int(self.name[1:]) + self.process
            self.session_ms = ODD_SESSIONS_MS[turn % len(ODD_SESSIONS_MS)]
            self.rebalance_ms = ODD_REBALANCES_MS[turn * 5 % len(ODD_REBALANCES_MS)]
            if self.instance_id is not None and turn % 5 == 0:
                self.session_ms = LARGEST_SESSION_MS

    # Requests

    def next_request(self) -> tuple[str, GroupRequest] | None:
        """Return the member's next request towards an assignment, if it needs one now."""
        if self.is_fenced or self.is_stable or "phase" in self.in_flight:
            return None
        joined = self.joined
        if joined is None:
            return "phase", JoinGroup(
                GROUP,
                self.member_id,
                self.session_ms,
                self.rebalance_ms,
                "consumer",
                (Protocol("range", _SUBSCRIPTION),),
                self.instance_id,
                f"{self.name}{self.process}",
                "/127.0.0.1",
            )
        assignments = assignment_of(joined.members) if joined.members and not joined.skip_assignment else ()
        return "phase", SyncGroup(
            GROUP, self.generation, self.member_id, self.instance_id, "consumer", "range", assignments
        )

    def heartbeat(self) -> tuple[str, GroupRequest] | None:
        """Return a heartbeat, from the first JoinGroup that succeeded on."""
        if self.generation < 0 or self.is_fenced or "heartbeat" in self.in_flight:
            return None
        return "heartbeat", Heartbeat(GROUP, self.generation, self.member_id, self.instance_id)

    def commit(self, position: int) -> tuple[str, GroupRequest] | None:
        """Return a commit for one of its partitions, perhaps before it rejoins."""
        if self.generation < 0 or self.is_fenced or not self.assignment or "commit" in self.in_flight:
            return None
        partition = TopicPartition(TOPIC, self.assignment[position % len(self.assignment)])
        offsets = (OffsetToCommit(partition, position, metadata=self.member_id),)
        return "commit", OffsetCommit(GROUP, offsets, self.generation, self.member_id, self.instance_id)

    def leave(self) -> tuple[str, GroupRequest] | None:
        """Return the farewell of a dynamic member; static ones just go (KIP-345)."""
        if not self.is_stable or self.instance_id is not None or "leave" in self.in_flight:
            return None
        return "leave", LeaveGroup(GROUP, (LeavingMember(self.member_id),))

    def rejoin(self) -> bool:
        """Join again from a stable state, as on a change of metadata; return whether it could."""
        if not self.is_stable:
            return False
        self.is_stable, self.joined = False, None
        return True

    # Responses

    def responded(self, kind: str, result: GroupResult) -> None:
        """Do what Kafka's consumer does with a response."""
        if isinstance(result, JoinGroupResult):
            self._joined(result)
        elif isinstance(result, SyncGroupResult):
            self._synced(result)
        elif isinstance(result, HeartbeatResult):
            self._failed(result.error)
        elif isinstance(result, OffsetCommitResult):
            self._failed(next(iter(result.partitions.values())))
        else:
            assert isinstance(result, LeaveGroupResult), (kind, result)
            self.restart()

    def _joined(self, result: JoinGroupResult) -> None:
        if result.error is ErrorCode.NONE:
            self.member_id, self.generation, self.joined = result.member_id, result.generation, result
        elif result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        else:
            self._failed(result.error)

    def _synced(self, result: SyncGroupResult) -> None:
        if result.error is ErrorCode.NONE and self.generation < 0:
            return  # a heartbeat has taken the generation away meanwhile: it joins again
        if result.error is ErrorCode.NONE:
            self.is_stable, self.assignment = True, result.assignment
        else:
            self.joined = None
            self._failed(result.error)

    def _failed(self, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced, self.is_stable = True, False
        elif error in _LOST:
            self.is_stable, self.joined, self.assignment = False, None, b""
            self.generation = -1
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_stable, self.joined = False, None
        elif error in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self.broker = -1
