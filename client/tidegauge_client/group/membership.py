"""A consumer's membership in a group: when it joins, sends heartbeats, gives its partitions up and leaves. Pure.

Times are arguments (monotonic ms). The shell asks ``poll_effects`` in each poll of the application and
``background_effects`` when ``background_due_ms`` has come, performs what they return, and reports what came of it.

States (AbstractCoordinator.MemberState)::

    UNJOINED              no member, or no more
    PREPARING_REBALANCE   JoinGroup is in flight
    COMPLETING_REBALANCE  SyncGroup is in flight
    STABLE                has an assignment, or is about to take it

Rules (AbstractCoordinator, Heartbeat, ConsumerCoordinator of Kafka 3.9):
    1. A member joins in poll only, so that it gives up and gets partitions there; heartbeats are sent in between.
    2. Before it joins it commits (auto commit), tells the listener, and gives up all partitions (eager rebalancing), or
       only partitions of topics that it no longer subscribes to (cooperative rebalancing, KIP-429). If its member id or
       generation is no longer valid, all are lost, not revoked; also in the middle of a rebalance.
    3. Heartbeats are sent from the response to JoinGroup on, every heartbeat.interval.ms, or the back-off after a
       failed one. Without a response for session.timeout.ms the coordinator counts as lost and is looked up again.
    4. Without a poll for max.poll.interval.ms a dynamic member leaves; a static one stops sending heartbeats. Both join
       again in the next poll.
    5. UNKNOWN_MEMBER_ID resets member id and generation, ILLEGAL_GENERATION the generation alone. An error counts only
       if the generation is still the one of the request.
    6. FENCED_INSTANCE_ID and errors of the settings are raised in poll, and in every later one.
    7. A leader joins again when the number of partitions of a topic of the group has changed since its assignment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_client.group.effects import (
    Effect,
    Fail,
    FindCoordinator,
    Generation,
    LeaveGroup,
    PrepareJoin,
    SendHeartbeat,
    SendJoin,
    TakeAssignment,
)

COORDINATOR_GONE = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
UNREACHABLE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""A connection that breaks or is closed because a request took too long: Kafka's DisconnectException."""
_REJOIN_AT_ONCE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)
_RETRIED = COORDINATOR_GONE | UNREACHABLE | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class MemberState(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing-rebalance"
    COMPLETING_REBALANCE = "completing-rebalance"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """The settings of a member, by Kafka's names and with its defaults."""

    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: float = 100


class JoinResponse(NamedTuple):
    """The part of a JoinGroup's response about the member itself."""

    error: ErrorCode
    message: str = ""
    generation: int = -1
    member_id: str = ""
    protocol: str = ""
    leader: str = ""

    @property
    def is_leader(self) -> bool:
        """Return whether the member computes the assignment."""
        return self.error is ErrorCode.NONE and self.leader == self.member_id


@dataclass(slots=True)
class _Timers:
    """Kafka's Heartbeat: deadlines in ms."""

    heartbeat_ms: float = math.inf
    session_ms: float = math.inf
    poll_ms: float = math.inf


@dataclass(slots=True)
class Membership:
    """The membership of one member in its group.

    Attributes:
        settings: of the member.
        coordinator: address of the group's coordinator; None: unknown.
        state: see the module's docstring.
        generation: the generation that the member belongs to, with its member id.
        rejoin_because: why it joins, as it tells the coordinator (KIP-800).
        is_rejoin_needed: whether it joins in the next poll.
        trouble: why the last attempt to find the coordinator or to join failed, while it is retried; None: it did not.
    """

    settings: MembershipSettings
    coordinator: str | None = None
    state: MemberState = MemberState.UNJOINED
    generation: Generation = field(default_factory=Generation)
    rejoin_because: str = ""
    is_rejoin_needed: bool = True
    trouble: TidegaugeError | None = None
    _is_prepared: bool = False
    _is_preparing: bool = False
    _is_joining: bool = False
    _is_finding: bool = False
    _is_beating: bool = False
    _assignment: bytes | None = None
    _snapshot: Mapping[str, int] | None = None
    _failure: TidegaugeError | None = None
    _timers: _Timers = field(default_factory=_Timers)
    _find_at_ms: float = -math.inf
    _join_at_ms: float = -math.inf

    # Questions of the shell ------------------------------------------------------------------------------------

    def poll_effects(self, now_ms: float) -> list[Effect]:
        """Return the work of a poll, in order; restart max.poll.interval.ms."""
        self._timers.poll_ms = now_ms + self.settings.max_poll_interval_ms
        if self._failure is not None:
            return [Fail(self._failure)]
        if self.coordinator is None:
            return self._find(now_ms)
        if self._assignment is not None:
            assignment, self._assignment = self._assignment, None
            return [TakeAssignment(self.generation, assignment)]
        if not self.is_rejoin_needed or self._is_joining or self._is_preparing or now_ms < self._join_at_ms:
            return []
        if not self._is_prepared:
            self._is_preparing = True
            return [PrepareJoin(is_lost=self.has_lost_partitions)]
        self._is_joining = True
        self.state = MemberState.PREPARING_REBALANCE
        return [SendJoin(self.generation, self.rejoin_because)]

    def background_effects(self, now_ms: float) -> list[Effect]:
        """Return due work between polls: heartbeats, and leaving after a long pause."""
        if self.state in {MemberState.UNJOINED, MemberState.PREPARING_REBALANCE} or self._failure is not None:
            return []
        if self.coordinator is not None and now_ms >= self._timers.session_ms:
            self.coordinator_lost()
        if self.coordinator is None:
            return self._find(now_ms)
        if now_ms >= self._timers.poll_ms:
            return self.leave("consumer poll timeout has expired.")
        if self._is_beating or now_ms < self._timers.heartbeat_ms:
            return []
        self._is_beating = True
        self._timers.heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms
        return [SendHeartbeat(self.generation)]

    def poll_due_ms(self, now_ms: float) -> float:
        """Return when a back-off ends for which a poll waits; infinity without one."""
        due = [self._find_at_ms] if self.coordinator is None else []
        if self.is_rejoin_needed and not self._is_joining:
            due.append(self._join_at_ms)
        return min((at_ms for at_ms in due if at_ms > now_ms), default=math.inf)

    def background_due_ms(self) -> float:
        """Return when ``background_effects`` has something to do; infinity while no timer runs."""
        if self.state in {MemberState.UNJOINED, MemberState.PREPARING_REBALANCE} or self._failure is not None:
            return math.inf
        if self.coordinator is None:
            return math.inf if self._is_finding else self._find_at_ms
        timers = self._timers
        beat_ms = math.inf if self._is_beating else timers.heartbeat_ms
        return min(beat_ms, timers.session_ms, timers.poll_ms)

    @property
    def has_lost_partitions(self) -> bool:
        """Return whether what the member still has may already belong to others (ConsumerCoordinator.onJoinPrepare)."""
        return self.generation.number < 0 or not self.generation.member_id

    @property
    def failure(self) -> TidegaugeError | None:
        """Return the error after which the consumer can only be closed (rule 6)."""
        return self._failure

    @property
    def is_rebalancing(self) -> bool:
        """Return whether a JoinGroup or SyncGroup is in flight."""
        return self.state in {MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE}

    @property
    def stable_generation(self) -> Generation | None:
        """Return the generation to commit in, None without one (AbstractCoordinator.generationIfStable)."""
        return self.generation if self.state is MemberState.STABLE else None

    # Coordinator -------------------------------------------------------------------------------------------------

    def _find(self, now_ms: float) -> list[Effect]:
        if self._is_finding or now_ms < self._find_at_ms:
            return []
        self._is_finding = True
        return [FindCoordinator()]

    def find_now(self, now_ms: float) -> list[Effect]:
        """Return the request for an unknown coordinator, which commits need too."""
        return self._find(now_ms) if self.coordinator is None else []

    def coordinator_found(self, address: str, now_ms: float) -> None:
        """Note the coordinator's address; the session timer starts again (Heartbeat.resetSessionTimeout)."""
        self._is_finding = False
        self.coordinator = address
        self._timers.session_ms = now_ms + self.settings.session_timeout_ms

    def coordinator_not_found(self, problem: TidegaugeError, now_ms: float) -> None:
        """Try again after the back-off; another error than a missing coordinator is raised in poll."""
        self._is_finding = False
        self.trouble = problem
        self._find_at_ms = now_ms + self.settings.retry_backoff_ms
        if problem.code not in _RETRIED:
            self._failure = problem

    def coordinator_lost(self) -> None:
        """Forget the coordinator; responses to requests in flight to it are ignored."""
        self.coordinator = None
        self._is_beating = False

    # Rebalances --------------------------------------------------------------------------------------------------

    def request_rejoin(self, because: str) -> None:
        """Join in the next poll."""
        self.is_rejoin_needed = True
        self.rejoin_because = because

    def partitions_seen(self, snapshot: Mapping[str, int]) -> None:
        """Compare the partitions of the group's topics with those that the leader assigned (rule 7)."""
        if self._snapshot is not None and not self._is_joining and dict(snapshot) != dict(self._snapshot):
            self.request_rejoin(
                f"cached metadata has changed from {dict(self._snapshot)} at the beginning of the rebalance to "
                f"{dict(snapshot)}"
            )

    def prepared(self, *, is_done: bool = True) -> None:
        """Note that offsets are committed and partitions given up; ``is_done`` false: the next poll goes on with it."""
        self._is_preparing = False
        if not is_done:
            return
        self._is_prepared = True
        self._snapshot = None

    def joined(self, response: JoinResponse, sent: Generation, now_ms: float) -> bool:
        """Take the response to JoinGroup; return whether a SyncGroup follows.

        Heartbeats begin here. A response that comes after the member was reset counts for nothing.
        """
        if response.error is not ErrorCode.NONE:
            self.join_failed(response.error, response.message, sent, now_ms)
            if response.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.generation = Generation(member_id=response.member_id)
                self.rejoin_because = f"need to re-join with the given member-id: {response.member_id}"
            return False
        if self.state is not MemberState.PREPARING_REBALANCE:
            self._end_join(now_ms, backs_off=False)
            return False
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation = Generation(response.generation, response.member_id, response.protocol)
        self._start_timers(now_ms)
        return True

    def assigned_as_leader(self, snapshot: Mapping[str, int]) -> None:
        """Note the partitions of the group's topics that the assignment is computed from."""
        self._snapshot = dict(snapshot)

    def synchronised(self, sent: Generation, assignment: bytes, now_ms: float) -> None:
        """Take the assignment of a generation; the next poll takes it over."""
        if self.state is MemberState.COMPLETING_REBALANCE and self.generation == sent:
            self.state = MemberState.STABLE
            self.trouble = None
            self.is_rejoin_needed = False
            self.rejoin_because = ""
            self._assignment = assignment
        self._end_join(now_ms, backs_off=False)

    def join_failed(self, error: ErrorCode, message: str, sent: Generation, now_ms: float) -> None:
        """Take an error of JoinGroup or SyncGroup, or that there was no response (rules 5 and 6)."""
        if self.state is MemberState.PREPARING_REBALANCE:
            self.state = MemberState.UNJOINED
        if not self.rejoin_because:
            self.rejoin_because = f"rebalance failed due to {error.name}"
        if error in _RETRIED:
            self.trouble = TidegaugeError(error, message)
        if error in COORDINATOR_GONE | UNREACHABLE:
            self.coordinator_lost()
        elif error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}:
            # A static member's id is fenced in a generation as well as before its first one.
            if self.generation == sent:
                self._refused(error, message)
        elif error not in _RETRIED | _REJOIN_AT_ONCE:
            self._failure = TidegaugeError(error, message)
        self._end_join(now_ms, backs_off=error not in _REJOIN_AT_ONCE)

    def _end_join(self, now_ms: float, *, backs_off: bool) -> None:
        self._is_joining = False
        self._join_at_ms = now_ms + self.settings.retry_backoff_ms if backs_off else now_ms
        if self.state is MemberState.STABLE:
            self._is_prepared = False

    # Heartbeats --------------------------------------------------------------------------------------------------

    def _start_timers(self, now_ms: float) -> None:
        self._timers.heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms
        self._timers.session_ms = now_ms + self.settings.session_timeout_ms
        self._timers.poll_ms = now_ms + self.settings.max_poll_interval_ms

    def heartbeat_done(self, sent: Generation, error: ErrorCode, message: str, now_ms: float) -> None:
        """Take the response to a heartbeat, or the error with which it failed."""
        self._is_beating = False
        if error in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            self._timers.session_ms = now_ms + self.settings.session_timeout_ms
            if (
                error is ErrorCode.REBALANCE_IN_PROGRESS
                and self.state is MemberState.STABLE
                and self.generation == sent
            ):
                self.request_rejoin("group is already rebalancing")
            return
        self._timers.heartbeat_ms = now_ms + self.settings.retry_backoff_ms
        if error in COORDINATOR_GONE | UNREACHABLE:
            self.coordinator_lost()
        elif self.generation == sent:
            self._refused(error, message)

    def _refused(self, error: ErrorCode, message: str) -> None:
        """Take an error that concerns the generation of a heartbeat or a commit (rules 5 and 6)."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._failure = TidegaugeError(error, message or _FENCED.format(self.settings.group_instance_id))
        elif error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self._reset(f"encountered {error.name}", keeps_id=error is ErrorCode.ILLEGAL_GENERATION)

    def commit_refused(self, sent: Generation, error: ErrorCode, message: str = "") -> None:
        """Take an error of an OffsetCommit that concerns the member; a late one changes nothing."""
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("offset commit failed since group is already rebalancing")
        elif self.generation == sent:
            self._refused(error, message)

    def _reset(self, because: str, *, keeps_id: bool) -> None:
        """Leave the generation; the next poll joins (AbstractCoordinator.resetStateAndRejoin)."""
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keeps_id else "")
        self._assignment = None
        self._snapshot = None
        self._is_beating = False
        self._is_prepared = False
        self.request_rejoin(because)

    # Leaving -----------------------------------------------------------------------------------------------------

    def leave(self, reason: str) -> list[Effect]:
        """Stop being a member; a dynamic one tells the coordinator, if there is one (rule 4)."""
        left: list[Effect] = []
        is_dynamic = self.settings.group_instance_id is None
        is_member = self.state is not MemberState.UNJOINED and bool(self.generation.member_id)
        if is_dynamic and is_member and self.coordinator is not None:
            left.append(LeaveGroup(self.generation, reason))
        self._reset(reason, keeps_id=False)
        return left


_FENCED = "Another consumer has joined with the group instance id {!r}: this one is fenced, and must be closed"
