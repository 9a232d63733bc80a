"""The machines of an explored group: the coordinator with its log and its checker, and each member.

The coordinator is the real one in the shell of the simulator's histories, checked by the same ``GroupChecker``; a
member is the simulator's ``Member``. A member sends what it can at once: whether it is the member that waits or the
network makes no difference to the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupRequest, GroupState, Heartbeat, HeartbeatResult, JoinGroup, OffsetFetch
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.events import RequestArrived
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_proof.exhaustive import canonical, snapshot
from tidegauge_proof.exhaustive.coordinated import Message
from tidegauge_proof.exhaustive.small_cluster import BROKER, EVENTS, SmallWorld
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.coordinator_world import Sending
from tidegauge_proof.simulator.groups.group_checker import GroupChecker, Token
from tidegauge_proof.simulator.groups.group_world import GroupWorld
from tidegauge_proof.simulator.groups.members import GROUP, PARTITIONS, SESSION_MS, TOPIC, Member
from tidegauge_proof.simulator.memory_broker import MemoryBroker

TICK_MS = SESSION_MS // 2
"""How far time goes at once: a member that is not heard of in two ticks has left."""
_FAR_MS = 1 << 50
_QUIET_TICKS = 6
"""Longer than any timer of a group."""
_HEARD = HeartbeatResult(ErrorCode.NONE)
_SETTINGS = GroupSettings(
    partitions=1,
    group_initial_rebalance_delay_ms=0,
    offsets_retention_ms=_FAR_MS,
    offsets_retention_check_interval_ms=_FAR_MS,
)


@dataclass(frozen=True, slots=True)
class GroupCall:
    """A request of a member. One that the member has given up is an orphan: its response goes nowhere."""

    member: str
    kind: str
    request: GroupRequest
    is_orphan: bool = False


snapshot.keep_as_values(GroupCall)
canonical.walk_values(GroupCall)


class Out(NamedTuple):
    """A response that leaves the coordinator."""

    call: GroupCall
    result: Any


class GroupFacts(NamedTuple):
    """The visible state of the coordinator's broker.

    Attributes:
        awaits: whether it waits for an append.
    """

    is_running: bool
    leads: bool
    is_loading: bool
    uncommitted: int
    awaits: bool
    refuses: bool


class _Groups(GroupWorld):
    """The shell, on a cluster of one broker."""

    def __init__(self, world: Any, checker: GroupChecker) -> None:
        self._ids: dict[str, int] = {}
        super().__init__(world, checker)

    def new_coordinator(self, broker: MemoryBroker) -> GroupCoordinator:
        del broker  # the clocks of an exploration are right
        coordinator = GroupCoordinator(_SETTINGS, self.world.now_ms)
        coordinator.step(self.world.now_ms)
        return coordinator

    def event_of(self, token: Token) -> object:
        """Return the event of a request, with ids numbered for each client."""
        request = token.call.request
        if not isinstance(request, JoinGroup) or request.member_id:
            return RequestArrived(token, request, "-")
        self._ids[request.client_id] = number = self._ids.get(request.client_id, 0) + 1
        return RequestArrived(token, request, str(number))


class GroupServer:
    """The coordinator, the log that outlives it, and what must hold."""

    def __init__(self) -> None:
        self._world = SmallWorld()
        self._checker = GroupChecker(self._world.partition)  # type: ignore[arg-type]  # a small one in the place of a Checker
        self._cluster = _Groups(self._world, self._checker)
        self._world.elect()
        self._cluster.run()
        self._load()

    def facts(self) -> GroupFacts:
        """Return what can be seen of it."""
        world = self._world
        return GroupFacts(
            world.broker.is_running,
            world.leads,
            bool(self._cluster.loading()),
            world.uncommitted,
            bool(world.broker.waiting),
            world.broker.refuses,
        )

    def handle(self, event: tuple[Any, ...]) -> tuple[Out, ...] | bool:
        """Take an event, run due timers, and return the responses that a member waits for; of ``rest`` its result."""
        kind, *rest = event
        if kind == "rest":
            return self._rests(*rest)
        if kind in self._EVENTS:
            self._EVENTS[kind](self, *rest)
        else:
            EVENTS[kind](self._world, *rest)
        self._cluster.run()
        while self._world.broker.is_running and self._cluster.step_timers():
            pass
        responses, self._cluster.responses = self._cluster.responses, []
        return tuple(Out(one.call, one.result) for one in responses if not one.call.is_orphan)

    def _arrive(self, call: GroupCall) -> None:
        self._cluster.arrive(Sending(call, BROKER))

    def _orphan(self, member: str, kind: str) -> None:
        """Take note that a member does not wait for its request any more."""
        for token in self._checker.open_tokens():
            if (token.call.member, token.call.kind) == (member, kind):
                token.call = orphan_of(token.call)

    def _load(self) -> None:
        while loading := self._cluster.loading():
            self._cluster.go_on_loading(loading[0])

    def _tick(self) -> None:
        self._world.now_ms += TICK_MS

    def _fetch(self) -> None:
        """Have the offsets of the group fetched, which the checker compares with acknowledged commits (G5)."""
        partitions = tuple(TopicPartition(TOPIC, index) for index in range(PARTITIONS))
        self._arrive(GroupCall("", "fetch", OffsetFetch(GROUP, partitions), is_orphan=True))

    def _rests(self, *beats: GroupCall) -> bool:
        """Let time pass, with heartbeats; return whether nothing more happens, and check the group then."""
        responses = self._cluster.responses
        for _ in range(_QUIET_TICKS):
            self._tick()
            for beat in beats:
                self._arrive(beat)
            self._cluster.step_timers()
            if self._world.uncommitted or any(one.result != _HEARD for one in responses):
                return False
            responses.clear()
        (process,) = self._cluster.processes.values()
        view = process.coordinator.group_view(GROUP)
        if beats and (view is None or view.state is not GroupState.STABLE):
            raise Violation("G9", f"the group is not Stable at the end: {view}")
        self._checker.at_rest(self._cluster)
        return True

    _EVENTS: ClassVar[dict[str, Callable[..., None]]] = {
        "arrive": _arrive,
        "orphan": _orphan,
        "load": _load,
        "tick": _tick,
        "fetch": _fetch,
    }


def orphan_of(call: GroupCall) -> GroupCall:
    """Return a call that its sender waits for no longer."""
    return GroupCall(call.member, call.kind, call.request, is_orphan=True)


class MemberFacts(NamedTuple):
    """The visible state of a member.

    Attributes:
        waits: for what kinds of requests.
        heartbeat: the one that it would send now.
        can_commit, can_leave: whether it may.
        is_stable: whether it has an assignment.
        has_left: for good.
        has_begun: whether it has sent its first request.
    """

    waits: tuple[str, ...]
    heartbeat: Heartbeat | None
    can_commit: bool
    can_leave: bool
    is_stable: bool
    has_left: bool
    has_begun: bool


class GroupMember:
    """A member that may leave for good."""

    def __init__(self, name: str, *, is_static: bool) -> None:
        self._member = Member(name, f"i{name}" if is_static else None, BROKER)
        self._has_left = self._has_begun = False

    def facts(self) -> MemberFacts:
        """Return what can be seen of it."""
        member = self._member
        beat = None if self._has_left else member.heartbeat()
        is_in = not self._has_left
        return MemberFacts(
            tuple(sorted(member.in_flight)),
            None if beat is None else cast("Heartbeat", beat[1]),
            is_in and member.commit(1) is not None,
            is_in and member.leave() is not None,
            is_in and member.is_stable,
            self._has_left,
            self._has_begun,
        )

    def handle(self, event: tuple[Any, ...]) -> tuple[GroupCall, ...]:
        """Take an event and return what the member sends."""
        kind, *rest = event
        member = self._member
        sent: list[GroupCall] = []
        if kind == "responded":
            self._responded(*rest)
        elif kind == "beaten":
            member.responded("heartbeat", rest[0])
        elif kind == "give up":
            del member.in_flight[rest[0]]
        elif kind == "restart":
            member.restart()
        elif kind == "commit":
            sent += self._sent(member.commit(rest[0]))
        elif kind == "leave":
            sent += self._sent(member.leave())
        member.broker = BROKER
        self._has_begun = True
        if not self._has_left:
            sent += self._sent(member.next_request())
        return tuple(sent)

    def _responded(self, message: Message) -> None:
        kind = message.call.kind
        del self._member.in_flight[kind]
        self._member.responded(kind, message.result)
        if kind == "leave":
            self._has_left = True
            self._member.in_flight.clear()

    def _sent(self, request: tuple[str, GroupRequest] | None) -> Iterator[GroupCall]:
        if request is not None:
            call = GroupCall(self._member.name, *request)
            self._member.in_flight[request[0]] = call
            yield call
