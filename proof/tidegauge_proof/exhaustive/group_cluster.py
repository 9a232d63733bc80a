"""Every schedule of one consumer group of two members on a coordinator that dies, and is loaded again from its log.

| what happens | |
|---|---|
| requests | arrive in any order; twice; or after their member has given them up |
| responses | arrive in any order, or never: their member gives up |
| heartbeats | one, with its response, is a step; a member that sends none for two ticks is removed |
| the log | batches become committed in order; appends are refused or time out |
| the coordinator | dies or loses its leadership, and uncommitted batches from any one on; is elected and loads |
| members | commit, leave for good, restart |

The two members are alike, so that the one whose first request arrives first is called m0. Clients notice at once when
the process dies that has their request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidegauge_proof.exhaustive.coordinated import (
    BROKER_WORDS,
    USES,
    Action,
    CoordinatorBounds,
    Message,
    Messages,
    Used,
    WorldState,
    broker_actions,
    with_message,
    without_message,
)
from tidegauge_proof.exhaustive.group_machines import GroupCall, GroupMember, GroupServer, Out, orphan_of
from tidegauge_proof.exhaustive.machines import Cell, Machines
from tidegauge_proof.simulator.checker import Violation

_MEMBERS = ("m0", "m1")
_REST_TICKS = 30
_PATIENCE_TICKS = 6
"""Longer than a rebalance may take."""


class GroupCluster:
    """The world."""

    def __init__(self, bounds: CoordinatorBounds) -> None:
        self.machines = Machines()
        self._bounds = bounds
        self._messages = Messages()

    def begin(self) -> WorldState:
        """Return the cluster with an empty group, and m0's first request in flight."""
        static = self._bounds.static
        members = tuple(
            self.machines.of(GroupMember(name, is_static=place < static)) for place, name in enumerate(_MEMBERS)
        )
        state = WorldState(self.machines.of(GroupServer()), members, (), (), Used())
        state = self._member(state, 0, "start")
        return state if static != 1 else self._member(state, 1, "start")

    # Possible actions

    def actions(self, state: WorldState) -> Iterator[Action]:
        """Return what may happen next."""
        used, bounds = state.used, self._bounds
        yield from broker_actions(state, bounds)
        if state.server.facts.is_running:
            for message in dict.fromkeys(state.requests):
                yield "arrive", message
                if used.duplicates < bounds.duplicates and not message.call.is_orphan:
                    yield "duplicate", message
        for message in state.responses:
            yield "respond", message
        for place, member in enumerate(state.clients):
            facts = member.facts
            if facts.heartbeat is not None and state.server.facts.is_running:
                yield "beat", place
            if facts.can_commit and used.commits < bounds.commits:
                yield "commit offset", place
            if facts.can_leave and used.leaves < bounds.leaves:
                yield "leave", place
            if used.restarts < bounds.restarts and not facts.has_left and (facts.waits or facts.is_stable):
                yield "restart", place
            if used.losses < bounds.losses:
                for kind in facts.waits:
                    yield "give up", place, kind

    def apply(self, state: WorldState, action: Action) -> WorldState:
        """Return what comes of it."""
        kind, *rest = action
        if kind in USES:
            state = state._replace(used=state.used.plus(USES[kind]))
        if kind in {"arrive", "duplicate"}:
            return self._arrive(state, rest[0], is_kept=kind == "duplicate")
        if kind == "respond":
            return self._respond(state, rest[0])
        if kind == "beat":
            return self._beat(state, rest[0])
        if kind == "give up":
            return self._give_up(state, *rest)
        if kind == "restart":
            for waited in state.clients[rest[0]].facts.waits:
                state = self._abandon(state, rest[0], waited)
            return self._member(state, rest[0], "restart")
        if kind == "commit offset":
            return self._member(state, rest[0], "commit", state.used.commits)
        if kind == "leave":
            return self._member(state, rest[0], "leave")
        state = self._server(state, *action)
        return self._hang_up(state) if kind == "die" else state

    # Steps

    def _server(self, state: WorldState, *event: object) -> WorldState:
        server, out = self.machines.apply(state.server, *event)
        return state._replace(server=server, responses=with_message(state.responses, self._responses(out)))

    def _responses(self, out: Iterable[Out]) -> Iterator[Message]:
        for one in out:
            yield self._messages.of(one.call, one.result)

    def _member(self, state: WorldState, place: int, *event: object) -> WorldState:
        member, sent = self.machines.apply(state.clients[place], *event)
        return state._replace(
            clients=_put(state.clients, place, member),
            requests=with_message(state.requests, map(self._messages.of, sent)),
        )

    def _arrive(self, state: WorldState, message: Message, *, is_kept: bool) -> WorldState:
        requests = without_message(state.requests, message)
        if is_kept:
            requests = with_message(requests, [self._messages.of(orphan_of(message.call))])
        state = self._server(state._replace(requests=requests), "arrive", message.call)
        return state if state.clients[1].facts.has_begun else self._member(state, 1, "start")

    def _respond(self, state: WorldState, message: Message) -> WorldState:
        state = state._replace(responses=without_message(state.responses, message))
        place = _place(message.call)
        if message.call.kind == "leave":
            for kind in state.clients[place].facts.waits:
                if kind != "leave":
                    state = self._abandon(state, place, kind)
        return self._member(state, place, "responded", message)

    def _beat(self, state: WorldState, place: int) -> WorldState:
        server, out = self.machines.apply(state.server, "arrive", self._heartbeat(state, place))
        others = [one for one in out if one.call.kind != "heartbeat"]
        ((_, result),) = [one for one in out if one.call.kind == "heartbeat"]
        state = state._replace(server=server, responses=with_message(state.responses, self._responses(others)))
        return self._member(state, place, "beaten", result)

    def _heartbeat(self, state: WorldState, place: int) -> GroupCall:
        return GroupCall(_MEMBERS[place], "heartbeat", state.clients[place].facts.heartbeat)

    def _give_up(self, state: WorldState, place: int, kind: str) -> WorldState:
        return self._member(self._abandon(state, place, kind), place, "give up", kind)

    def _abandon(self, state: WorldState, place: int, kind: str) -> WorldState:
        """Make the request of a kind an orphan, wherever it is."""
        for message in state.requests:
            if _is_of(message.call, place, kind):
                requests = without_message(state.requests, message)
                orphan = self._messages.of(orphan_of(message.call))
                return state._replace(requests=with_message(requests, [orphan]))
        for message in state.responses:
            if _is_of(message.call, place, kind):
                return state._replace(responses=without_message(state.responses, message))
        server, _ = self.machines.apply(state.server, "orphan", _MEMBERS[place], kind)
        return state._replace(server=server)

    def _hang_up(self, state: WorldState) -> WorldState:
        """Let clients notice that the process has ended that had their requests."""
        for place, member in enumerate(state.clients):
            for kind in member.facts.waits:
                on_their_way = (*state.requests, *state.responses)
                if not any(_is_of(message.call, place, kind) for message in on_their_way):
                    state = self._member(state, place, "give up", kind)
        return state

    # Judging

    def judge(self, state: WorldState) -> None:
        """Fetch the offsets in every state of the coordinator (G5)."""
        server = state.server
        if not server.is_judged:
            if server.facts.is_running:
                self.machines.ask(server, "fetch")
            server.is_judged = True

    def towards_rest(self, state: WorldState) -> tuple[Action, WorldState] | None:
        """Return the next step without faults: a member's request, or a due timer."""
        action = self._next(state)
        if action is not None:
            return action, self.apply(state, action)
        staying = [place for place, member in enumerate(state.clients) if not member.facts.has_left]
        if all(state.clients[place].facts.is_stable for place in staying):
            beats = (self._heartbeat(state, place) for place in staying)
            if self.machines.ask(state.server, "rest", *beats):
                return None
        if state.used.ticks > _REST_TICKS:
            raise Violation("G9", "the members do not come to rest")
        state = self.apply(state, ("tick",))
        return ("tick",), state if state.used.ticks % _PATIENCE_TICKS else self._lose_patience(state)

    def _next(self, state: WorldState) -> Action | None:
        facts = state.server.facts
        if not facts.leads:
            return ("elect",)
        if facts.is_loading:
            return ("load",)
        if facts.uncommitted:
            return ("commit",)
        if state.requests:
            return "arrive", state.requests[0]
        if state.responses:
            return "respond", state.responses[0]
        beats = (("beat", place) for place, one in enumerate(state.clients) if one.facts.heartbeat is not None)
        return next((beat for beat in beats if self.apply(state, beat).core != state.core), None)

    def _lose_patience(self, state: WorldState) -> WorldState:
        """Let requests time out that get no response, as when a copy of one has taken its place."""
        for place, member in enumerate(state.clients):
            for kind in member.facts.waits:
                state = self._give_up(state, place, kind)
        return state

    # Words

    def words_of(self, action: Action) -> str:
        """Return what an action does."""
        kind, *rest = action
        if kind in BROKER_WORDS:
            return BROKER_WORDS[kind].format(*rest)
        if kind in {"arrive", "duplicate"}:
            call = rest[0].call
            late = ", which it has given up," if call.is_orphan else ""
            again = ", and will once more" if kind == "duplicate" else ""
            return f"{type(call.request).__name__} of {call.member}{late} arrives{again}"
        if kind == "respond":
            return (
                f"the response to {type(rest[0].call.request).__name__} reaches {rest[0].call.member}: {rest[0].result}"
            )
        name = _MEMBERS[rest[0]]
        return _MEMBER_WORDS[kind].format(name, *rest[1:])


_MEMBER_WORDS = {
    "beat": "{0} sends a heartbeat, and hears of it",
    "commit offset": "{0} sends a commit",
    "leave": "{0} sends that it leaves",
    "restart": "{0} restarts",
    "give up": "{0} gives up its {1}",
}


def _put(clients: tuple[Cell, ...], place: int, client: Cell) -> tuple[Cell, ...]:
    return (*clients[:place], client, *clients[place + 1 :])


def _place(call: GroupCall) -> int:
    return _MEMBERS.index(call.member)


def _is_of(call: GroupCall, place: int, kind: str) -> bool:
    return call.member == _MEMBERS[place] and call.kind == kind and not call.is_orphan
