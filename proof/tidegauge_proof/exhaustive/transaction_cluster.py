"""Every schedule of a transactional producer, its successor, and transactions over two partitions, on a coordinator.

| what happens | |
|---|---|
| requests | arrive in any order; twice; or after their producer has given them up |
| responses | arrive in any order, or never: their producer gives up |
| records | their leader asks the coordinator first, and writes them when it hears of it (KIP-890) |
| markers | arrive in any order, twice, after their connection has ended; fail with effect or without |
| the log | batches become committed in order; appends are refused or time out |
| the coordinator | dies or loses its leadership, and uncommitted batches from any one on; is elected and loads |
| producers | commit or abort, at any time; restart, and fence each other |
| time | passes by more than the timeout of transactions |

Both producers have the same transactional id and are alike, so that the one whose first request arrives first is called
p0. Producers notice at once when the process dies that has their request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidegauge.errors import ErrorCode
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddPartitionsToTxnResult
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
from tidegauge_proof.exhaustive.machines import Machines
from tidegauge_proof.exhaustive.transaction_machines import (
    Name,
    Out,
    TransactionCall,
    TransactionProducer,
    TransactionServer,
    Verification,
    Written,
    orphan_of,
)
from tidegauge_proof.simulator.checker import Violation

_PRODUCERS = ("p0", "p1")
_REST_TICKS = 20


class TransactionCluster:
    """The world."""

    def __init__(self, bounds: CoordinatorBounds) -> None:
        self.machines = Machines()
        self._bounds = bounds
        self._messages = Messages()

    def begin(self) -> WorldState:
        """Return the cluster without a transactional id, and p0's first request in flight."""
        producers = tuple(
            self.machines.of(TransactionProducer(name, self._bounds.transactions, self._bounds.restarts))
            for name in _PRODUCERS
        )
        return self._producer(WorldState(self.machines.of(TransactionServer()), producers, (), (), Used()), 0, "start")

    # Possible actions

    def actions(self, state: WorldState) -> Iterator[Action]:
        """Return what may happen next."""
        used, bounds, facts = state.used, self._bounds, state.server.facts
        yield from broker_actions(state, bounds)
        if facts.is_running:
            for message in dict.fromkeys(state.requests):
                yield "arrive", message
                if used.duplicates < bounds.duplicates and not message.call.is_orphan and message.call.datum is None:
                    yield "duplicate", message
        for message in state.responses:
            yield "respond", message
        if facts.retries:
            yield ("retry",)
        yield from self._markers(state)
        for place, producer in enumerate(state.clients):
            if producer.facts.can_commit:
                yield "end", place, int(Outcome.COMMIT)
            if producer.facts.can_abort:
                yield "end", place, int(Outcome.ABORT)
            if producer.facts.waits and used.losses < bounds.losses:
                yield "give up", place

    def _markers(self, state: WorldState) -> Iterator[Action]:
        used, bounds, facts = state.used, self._bounds, state.server.facts
        for place, is_lost in enumerate(facts.markers):
            yield "mark", place
            if is_lost:
                continue
            if used.duplicates < bounds.duplicates:
                yield "mark twice", place
            if used.losses < bounds.losses:
                yield "lose markers", place
            if used.failures < bounds.failures:
                yield "fail markers", place, False
                yield "fail markers", place, True
        for place in range(facts.marker_responses):
            yield "marked", place
            if used.losses < bounds.losses:
                yield "lose marked", place

    def apply(self, state: WorldState, action: Action) -> WorldState:
        """Return what comes of it."""
        kind, *rest = action
        if kind in USES:
            state = state._replace(used=state.used.plus(USES[kind]))
        if kind in {"arrive", "duplicate"}:
            return self._arrive(state, rest[0], is_kept=kind == "duplicate")
        if kind == "respond":
            return self._respond(state, rest[0])
        if kind == "give up":
            return self._producer(self._abandon(state, rest[0]), rest[0], "give up")
        if kind == "end":
            return self._producer(state, rest[0], "end", rest[1])
        state = self._server(state, *action)
        return self._hang_up(state) if kind == "die" else state

    # Steps

    def _server(self, state: WorldState, *event: object) -> WorldState:
        server, out = self.machines.apply(state.server, *event)
        return self._go_on(state._replace(server=server), out)

    def _go_on(self, state: WorldState, out: Iterable[Out | Written | Verification]) -> WorldState:
        """Put responses and verifications on their way; a producer hears of its record at once."""
        for one in out:
            if isinstance(one, Out):
                response = self._messages.of(one.call, one.result)
                state = state._replace(responses=with_message(state.responses, [response]))
            elif isinstance(one, Verification):
                state = state._replace(requests=with_message(state.requests, [self._messages.of(one.call)]))
            else:
                state = self._producer(state, _PRODUCERS.index(one.producer), "written", one)
        return state

    def _producer(self, state: WorldState, place: int, *event: object) -> WorldState:
        producer, sent = self.machines.apply(state.clients[place], *event)
        clients = (*state.clients[:place], producer, *state.clients[place + 1 :])
        state = state._replace(clients=clients)
        for one in sent:
            if isinstance(one, TransactionCall):
                state = state._replace(requests=with_message(state.requests, [self._messages.of(one)]))
            else:
                state = self._server(state, "write", Name(_PRODUCERS[place]), *one)
        return state

    def _arrive(self, state: WorldState, message: Message, *, is_kept: bool) -> WorldState:
        requests = without_message(state.requests, message)
        if is_kept:
            requests = with_message(requests, [self._messages.of(orphan_of(message.call))])
        state = self._server(state._replace(requests=requests), "arrive", message.call)
        has_all = self._bounds.producers == 1 or state.clients[1].facts.has_begun
        return state if has_all else self._producer(state, 1, "start")

    def _respond(self, state: WorldState, message: Message) -> WorldState:
        state = state._replace(responses=without_message(state.responses, message))
        if message.call.datum is not None:
            return self._server(state, "verified", message)
        return self._producer(state, _PRODUCERS.index(message.call.producer.name), "responded", message)

    def _abandon(self, state: WorldState, place: int) -> WorldState:
        """Make the request of a producer an orphan, wherever it is."""
        for message in state.requests:
            if _is_of(message.call, place):
                requests = without_message(state.requests, message)
                orphan = self._messages.of(orphan_of(message.call))
                return state._replace(requests=with_message(requests, [orphan]))
        for message in state.responses:
            if _is_of(message.call, place):
                return state._replace(responses=without_message(state.responses, message))
        server, _ = self.machines.apply(state.server, "orphan", Name(_PRODUCERS[place]))
        return state._replace(server=server)

    def _hang_up(self, state: WorldState) -> WorldState:
        """Let producers and leaders of data notice that the process has ended that had their requests."""
        for place, producer in enumerate(state.clients):
            if producer.facts.waits and not any(_is_of(one.call, place) for one in (*state.requests, *state.responses)):
                state = self._producer(state, place, "give up")
        return state

    # Judging

    def judge(self, state: WorldState) -> None:
        """Nothing is left to ask: the checker looks at every event."""

    def towards_rest(self, state: WorldState) -> tuple[Action, WorldState] | None:
        """Return the next step without faults; after the producers' end, timeouts."""
        facts = state.server.facts
        action = self._next(state)
        if action is None and facts.is_over and state.used.ticks > 0:
            self.machines.ask(state.server, "rest", *state.clients)
            return None
        if state.used.ticks > self._bounds.ticks + _REST_TICKS:
            raise Violation("T10", "transactions do not come to their end")
        kind, *rest = action = action or ("tick",)
        return action, self._respond_to_ended(state, *rest) if kind == "respond" else self.apply(state, action)

    def _next(self, state: WorldState) -> Action | None:
        facts = state.server.facts
        if not facts.leads:
            return ("elect",)
        for is_due, action in (
            (facts.is_loading, ("load",)),
            (facts.uncommitted, ("commit",)),
            (facts.markers, ("mark", 0)),
            (facts.marker_responses, ("marked", 0)),
            (facts.retries, ("retry",)),
        ):
            if is_due:
                return action
        if state.requests:
            return "arrive", state.requests[0]
        return ("respond", state.responses[0]) if state.responses else None

    def _respond_to_ended(self, state: WorldState, message: Message) -> WorldState:
        """Deliver a response; a producer takes it in, and sends nothing more."""
        state = state._replace(responses=without_message(state.responses, message))
        if message.call.datum is not None:
            server, _ = self.machines.apply(state.server, "verified", message)
            return state._replace(server=server)
        place = _PRODUCERS.index(message.call.producer.name)
        producer, _ = self.machines.apply(state.clients[place], "responded", message)
        return state._replace(clients=(*state.clients[:place], producer, *state.clients[place + 1 :]))

    # Words

    def words_of(self, action: Action) -> str:
        """Return what an action does."""
        kind, *rest = action
        if kind in BROKER_WORDS:
            return BROKER_WORDS[kind].format(*rest)
        if kind in {"arrive", "duplicate"}:
            again = ", and will once more" if kind == "duplicate" else ""
            return f"{_call(rest[0].call)} arrives{again}"
        if kind == "respond":
            return f"the response to {_call(rest[0].call)} arrives: {_result(rest[0].result)}"
        if kind == "end":
            return f"{_PRODUCERS[rest[0]]} ends its transaction with {Outcome(rest[1]).name}"
        if kind == "give up":
            return f"{_PRODUCERS[rest[0]]} gives its request up, and sends it again"
        return _MARKER_WORDS[kind].format(*rest)


_MARKER_WORDS = {
    "mark": "request {0} for markers arrives",
    "mark twice": "request {0} for markers arrives, and will once more",
    "lose markers": "the connection of request {0} for markers ends",
    "fail markers": "request {0} for markers fails; with effect: {1}",
    "marked": "response {0} to markers arrives",
    "lose marked": "response {0} to markers is lost",
    "retry": "what failed is tried again",
}


def _is_of(call: TransactionCall, place: int) -> bool:
    return call.producer.name == _PRODUCERS[place] and call.datum is None and not call.is_orphan


def _call(call: TransactionCall) -> str:
    late = ", which it has given up," if call.is_orphan else ""
    if call.datum is not None:
        return f"the verification of {call.datum[1].value} for {call.datum[0]}"
    return f"{type(call.request).__name__} of {call.producer.name}{late}"


def _result(result: object) -> str:
    if isinstance(result, AddPartitionsToTxnResult):
        return ", ".join(error.name for error in result.partitions.values())
    error: ErrorCode = getattr(result, "error", ErrorCode.NONE)
    return error.name
