"""The machines of an explored transaction: the coordinator with log, data and checker, and each producer.

The coordinator is the real one in the shell of the simulator's histories; the partitions of data, the producers and the
``TransactionChecker`` are the same as in the histories. A producer sends what it can at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddPartitionsToTxn, AddPartitionsToTxnResult, TransactionRequest
from tidegauge_broker.coordinator.effects import Effect, FindLeaders
from tidegauge_broker.coordinator.events import LeadersFound
from tidegauge_broker.coordinator.settings import TransactionSettings
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_broker.coordinator.transaction.markers import RETRY_BACKOFF_MS
from tidegauge_proof.exhaustive import canonical, snapshot
from tidegauge_proof.exhaustive.coordinated import Message
from tidegauge_proof.exhaustive.small_cluster import BROKER, EVENTS, SmallWorld
from tidegauge_proof.simulator.coordinator_world import Sending
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.transactions.data import Datum
from tidegauge_proof.simulator.transactions.producers import PARTITIONS, TIMEOUT_MS, Phase, Producer
from tidegauge_proof.simulator.transactions.transaction_checker import Incarnation, TransactionChecker
from tidegauge_proof.simulator.transactions.transaction_world import MarkerRequest, TransactionWorld

TRANSACTIONAL_ID = "id"
OUTPUTS = PARTITIONS[:2]
_TICK_MS = TIMEOUT_MS + 1_000
"""How far time goes at once: every open transaction times out."""
_SETTINGS = TransactionSettings(
    partitions=1,
    transaction_max_timeout_ms=TIMEOUT_MS,
    transactional_id_expiration_ms=1 << 50,
    abort_timed_out_interval_ms=_TICK_MS,
    remove_expired_interval_ms=1 << 50,
)


class Name(NamedTuple):
    """Whose request it is."""

    name: str
    transactional_id: str = TRANSACTIONAL_ID


@dataclass(frozen=True, slots=True)
class TransactionCall:
    """A request of a producer, or the verification that a leader of data asks for its record (``datum``).

    One that the producer has given up is an orphan: its response goes nowhere.
    """

    producer: Name
    request: TransactionRequest
    datum: tuple[TopicPartition, Datum] | None = None
    is_orphan: bool = False


snapshot.keep_as_values(TransactionCall)
canonical.walk_values(TransactionCall)


class Out(NamedTuple):
    """A response that leaves the coordinator."""

    call: TransactionCall
    result: Any


class Written(NamedTuple):
    """The response about a record to a producer."""

    producer: str
    partition: TopicPartition
    datum: Datum
    error: ErrorCode


class Verification(NamedTuple):
    """A data leader's question to the coordinator before a record is written."""

    call: TransactionCall


class TransactionFacts(NamedTuple):
    """The visible state of the coordinator's broker, and of the network between it and the data.

    Attributes:
        markers: for each request for markers whether its connection has ended.
        marker_responses: how many are on their way.
        is_over: whether every transaction is complete.
    """

    is_running: bool
    leads: bool
    is_loading: bool
    uncommitted: int
    awaits: bool
    refuses: bool
    markers: tuple[bool, ...]
    marker_responses: int
    retries: bool
    is_over: bool


class _Transactions(TransactionWorld):
    """The shell, on a cluster of one broker; the leader of each partition of data is a broker of its own."""

    def __init__(self, world: Any, checker: TransactionChecker) -> None:
        super().__init__(world, checker, cast("Dice", None), allows_late=True, judges=True)
        self.is_calm = True

    def new_coordinator(self, broker: MemoryBroker) -> TransactionCoordinator:
        del broker  # the clocks of an exploration are right
        return TransactionCoordinator(_SETTINGS, self.world.now_ms)

    def carry_out_other(self, process: Incarnation, effect: Effect) -> None:
        if isinstance(effect, FindLeaders):
            leaders = {name: PARTITIONS.index(name) for name in effect.partitions}
            process.events.append(LeadersFound(effect.lookup_id, leaders))
        else:
            super().carry_out_other(process, effect)


class TransactionServer:
    """The coordinator, the log that outlives it, the data, and what must hold."""

    def __init__(self) -> None:
        self._world = SmallWorld()
        self._checker = TransactionChecker(self._world.partition)  # type: ignore[arg-type]  # a small one in the place of a Checker
        self._cluster = _Transactions(self._world, self._checker)
        self._guards: dict[TransactionCall, object] = {}
        self._world.elect()
        self._cluster.run()
        self._load()

    def facts(self) -> TransactionFacts:
        """Return what can be seen of it."""
        world, cluster = self._world, self._cluster
        return TransactionFacts(
            world.broker.is_running,
            world.leads,
            bool(cluster.loading()),
            world.uncommitted,
            bool(world.broker.waiting),
            world.broker.refuses,
            tuple(one.is_lost for one in cluster.markers),
            len(cluster.marker_responses),
            self._retry_ms() is not None,
            self._is_over(),
        )

    def _retry_ms(self) -> int | None:
        """Return when failed markers are sent again; None if there are none."""
        due = [process.coordinator.next_deadline_ms() for process in self._cluster.processes.values()]
        return next((ms for ms in due if ms is not None and ms <= self._world.now_ms + RETRY_BACKOFF_MS), None)

    def _is_over(self) -> bool:
        views = [view for one in self._cluster.processes.values() for view in one.coordinator.transaction_views()]
        return all(view.pending_state is None and view.state.value.startswith(("Empty", "Complete")) for view in views)

    def handle(self, event: tuple[Any, ...]) -> tuple[Out | Written | Verification, ...]:
        """Take an event, run due timers, and return the messages to producers."""
        kind, *rest = event
        out: list[Out | Written | Verification] = []
        if kind in self._EVENTS:
            out += self._EVENTS[kind](self, *rest)
        else:
            EVENTS[kind](self._world, *rest)
        self._cluster.run()
        while self._world.broker.is_running and self._cluster.step_timers():
            pass
        responses, self._cluster.responses = self._cluster.responses, []
        out += [Out(one.call, one.result) for one in responses if not one.call.is_orphan]
        self._cluster.markers.sort(key=_marker_order)
        self._cluster.marker_responses.sort(key=_marker_order)
        return tuple(out)

    # Events; each returns what goes to producers at once

    def _arrive(self, call: TransactionCall) -> Iterator[Written]:
        self._cluster.arrive(Sending(call, BROKER))
        yield from ()

    def _orphan(self, producer: Name) -> Iterator[Written]:
        for token in self._checker.open_tokens():
            if token.call.producer == producer and token.call.datum is None:
                token.call = orphan_of(token.call)
        yield from ()

    def _write(self, producer: Name, partition: TopicPartition, datum: Datum) -> Iterator[Written | Verification]:
        """Write a record: at once in an open transaction, else when the coordinator has confirmed it (KIP-890)."""
        guard = self._cluster.data[partition].guard(datum.producer_id)
        if guard is None:
            yield self._append(producer, partition, datum, None)
            return
        request = AddPartitionsToTxn(
            producer.transactional_id, datum.producer_id, datum.producer_epoch, (partition,), verify_only=True
        )
        call = TransactionCall(producer, request, (partition, datum))
        self._guards[call] = guard
        yield Verification(call)

    def _verified(self, message: Message) -> Iterator[Written]:
        """Take the response to a verification; without one the record is refused."""
        call = message.call
        guard = self._guards.pop(call)
        partition, datum = call.datum
        assert isinstance(message.result, AddPartitionsToTxnResult)
        error = next(iter(message.result.partitions.values()))
        if error is ErrorCode.NONE:
            yield self._append(call.producer, partition, datum, guard)
        else:
            yield Written(call.producer.name, partition, datum, error)

    def _append(self, producer: Name, partition: TopicPartition, datum: Datum, guard: object | None) -> Written:
        error = self._cluster.data[partition].append(datum, guard)
        if error is ErrorCode.NONE:
            self._checker.produced(partition, datum)
        return Written(producer.name, partition, datum, error)

    def _load(self) -> Iterator[Written]:
        while loading := self._cluster.loading():
            self._cluster.go_on_loading(loading[0])
        return iter(())

    def _mark(self, place: int) -> Iterator[Written]:
        self._cluster.write_markers(self._cluster.markers.pop(place))
        yield from ()

    def _mark_twice(self, place: int) -> Iterator[Written]:
        request = self._cluster.markers[place]
        self._cluster.write_markers(request)
        self._cluster.markers[place] = MarkerRequest(request.process, request.effect, is_lost=True)
        yield from ()

    def _lose_markers(self, place: int) -> Iterator[Written]:
        """End the connection of a request for markers, which may arrive nevertheless."""
        request = self._cluster.markers[place]
        request.is_lost = True
        self._cluster.finish_markers(MarkerRequest(request.process, request.effect))
        yield from ()

    def _fail_markers(self, place: int, is_done: bool) -> Iterator[Written]:
        """Have a request for markers fail with an error, with effect or without."""
        request = self._cluster.markers.pop(place)
        if is_done:
            self._cluster.write_markers(MarkerRequest(request.process, request.effect, is_lost=True))
        error = ErrorCode.REQUEST_TIMED_OUT if is_done else ErrorCode.NOT_LEADER_OR_FOLLOWER
        errors = {one.marker.producer_id: dict.fromkeys(one.partitions, error) for one in request.effect.markers}
        self._cluster.marker_responses.append(MarkerRequest(request.process, request.effect, errors))
        yield from ()

    def _marked(self, place: int) -> Iterator[Written]:
        self._cluster.finish_markers(self._cluster.marker_responses.pop(place))
        yield from ()

    def _lose_marked(self, place: int) -> Iterator[Written]:
        response = self._cluster.marker_responses.pop(place)
        response.errors = None
        self._cluster.finish_markers(response)
        yield from ()

    def _retry(self) -> Iterator[Written]:
        self._world.now_ms = self._retry_ms() or self._world.now_ms
        yield from ()

    def _tick(self) -> Iterator[Written]:
        self._world.now_ms += _TICK_MS
        yield from ()

    def _die(self, kept: int) -> Iterator[Written]:
        self._world.die(kept)
        self._cluster.run()
        self._cluster.marker_responses.clear()
        for request in self._cluster.markers:
            request.is_lost = True
        yield from ()

    def _rest(self, *producers: Any) -> Iterator[Written]:
        stories = [story for cell in producers for story in cell.machine().stories]
        self._checker.at_rest(self._cluster, stories, judges=self._cluster.judges)
        yield from ()

    _EVENTS: ClassVar[dict[str, Callable[..., Iterator[Any]]]] = {
        "arrive": _arrive,
        "orphan": _orphan,
        "write": _write,
        "verified": _verified,
        "load": _load,
        "mark": _mark,
        "mark twice": _mark_twice,
        "lose markers": _lose_markers,
        "fail markers": _fail_markers,
        "marked": _marked,
        "lose marked": _lose_marked,
        "retry": _retry,
        "tick": _tick,
        "die": _die,
        "rest": _rest,
    }


def _marker_order(request: MarkerRequest) -> str:
    return repr((request.effect.broker_id, request.effect.markers, request.is_lost, request.errors))


def orphan_of(call: TransactionCall) -> TransactionCall:
    """Return a call that its sender waits for no longer."""
    return TransactionCall(call.producer, call.request, call.datum, is_orphan=True)


class ProducerFacts(NamedTuple):
    """The visible state of a producer.

    Attributes:
        waits: for the response to a request.
        can_abort, can_commit: whether it may end its transaction so.
        is_done: it does nothing more.
        has_begun: whether it has sent its first request.
    """

    waits: bool
    can_abort: bool
    can_commit: bool
    is_done: bool
    has_begun: bool


class TransactionProducer(Producer):
    """A producer with so many transactions, and so many processes."""

    def __init__(self, name: str, transactions: int, restarts: int) -> None:
        super().__init__(name, TRANSACTIONAL_ID, BROKER)
        self._transactions, self._restarts = transactions, restarts
        self._writing: set[TopicPartition] = set()
        self._is_done = self._has_begun = False

    def facts(self) -> ProducerFacts:
        """Return what can be seen of it."""
        is_writing = self.phase is Phase.PRODUCING and not self._is_done
        return ProducerFacts(
            self.in_flight is not None,
            is_writing,
            is_writing and self.has_written_all,
            self._is_done,
            self._has_begun,
        )

    def restart(self) -> None:
        """Begin a new process, if there is another."""
        super().restart()
        self._writing = set()
        self._is_done = self._restarts == 0
        self._restarts -= 1

    def handle(self, event: tuple[Any, ...]) -> tuple[Any, ...]:
        """Take an event; return the calls that are sent, and the records as pairs of partition and datum."""
        kind, *rest = event
        self._has_begun = True
        if kind == "responded":
            self.responded(rest[0].result)
        elif kind == "give up":
            self.in_flight = None
        elif kind == "end":
            self.end(Outcome(rest[0]))
        elif kind == "restart":
            self.restart()
        elif kind == "written":
            self._writing.discard(rest[0].partition)
            self.written(*rest[0][1:])
        self.broker = BROKER
        return () if self._is_done or kind == "stop" else tuple(self._go_on())

    def _go_on(self) -> Iterator[Any]:
        if self.phase is Phase.READY:
            if not self._transactions:
                self._is_done = True
                return
            self._transactions -= 1
            self._writing = set()
            self.begin(OUTPUTS)
        request = self.next_request()
        if request is not None:
            call = TransactionCall(Name(self.name), request)
            self.in_flight = cast("Any", call)
            yield call
        written = self.next_datum(len(self.stories))
        if written is not None and written[0] not in self._writing:
            self._writing.add(written[0])
            yield written
