"""The cluster as a state, what may happen in it next, and the state after that.

Nothing here knows a rule of replication: an action is a few events of brokers and the controller (broker_machine.py,
controllers/zookeeper.py), and their responses carried from one to the other. Events are executed by an argument, so
that the same actions drive brokers that are remembered (memo.py) and brokers that live on (live.py).

| action | what happens |
|---|---|
| leader_and_isr, letter | one that was written to this incarnation of the broker arrives, in any order, or never |
| produce, leader | a record at one who believes that he leads |
| round, follower, may_join, ``answered`` | a request (fetch or epoch lookup) and its response, or its response is lost
|
| ask, follower / arrive, exchange, may_join / receive, exchange / lose, exchange | the same, each by itself |
| shrink, leader, spared | followers that lag leave the ISR, but for the spared; a proposal is in flight |
| alter, leader, ``told`` | the proposal in flight is judged; ``told``: the verdict arrives |
| elect, leader / drop, member | of the models: the controller elects, or removes a member from the ISR |
| look / rebalance | Kafka's: the controller looks at the brokers' znodes; the preferred leader is elected |
| checkpoint, kill, power (keep), start, expire, register: broker | processes, disks and sessions |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any, NamedTuple, Protocol

from tidegauge.control import NO_LEADER
from tidegauge_broker.replica.snapshot import LeaderSnapshot
from tidegauge_proof.exhaustive.broker_machine import Setting
from tidegauge_proof.exhaustive.controllers.chosen import Event, Outcome
from tidegauge_proof.exhaustive.frozen import (
    BrokerState,
    Cell,
    Cells,
    ControllerState,
    Exchange,
    FollowerRequest,
    Letter,
)
from tidegauge_proof.own_rules import OwnRules

Action = tuple[Any, ...]
MODEL, KAFKA = "model", "kafka"
"""The electing controller: the published models', at will; or Kafka's, as sessions end and begin."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a schedule may go.

    Attributes:
        replicas: brokers, each with a replica.
        records: produced in all.
        elections: the highest leader epoch.
        crashes: processes that die; ``power_cuts``: of them those that lose records; both come on top of each other.
        sessions: sessions that end though the process lives.
        messages: requests and responses of followers that may be on their way at the same time; with 0 a request and
            its response are one step, and so are a proposal and its verdict.
        controller: MODEL or KAFKA.
        min_isr: ``min.insync.replicas``.
        unclean: whether elections may be unclean (KAFKA).
        as_model: grant the two liberties that the models take (see ``tidegauge replay``).
    """

    replicas: int = 2
    records: int = 3
    elections: int = 2
    crashes: int = 0
    power_cuts: int = 0
    sessions: int = 0
    messages: int = 0
    controller: str = MODEL
    min_isr: int = 1
    unclean: bool = False
    as_model: bool = False

    def setting(self, rule: str | OwnRules) -> Setting:
        """Return what the brokers have in common."""
        return Setting(
            self.replicas,
            rule,
            power=self.power_cuts > 0,
            min_isr=self.min_isr,
            unclean=self.unclean,
            as_model=self.as_model,
        )


class Used(NamedTuple):
    """The used part of the bounds."""

    records: int = 0
    crashes: int = 0
    power_cuts: int = 0
    sessions: int = 0


class ClusterState(NamedTuple):
    """The cluster; each part is a cell. ``committed``: what any replica has had below its high watermark (KAFKA)."""

    brokers: tuple[Cell, ...]
    controller: Cell
    mail: Cell
    net: Cell
    used: Cell
    committed: Cell


class Executor(Protocol):
    """Executes events."""

    cells: Cells

    def broker(self, broker: int, cell: Cell, event: Event) -> tuple[Cell, Any]:
        """One event of a broker in a state: its next state, and what it gave."""
        ...

    def refuses(self, broker: int, cell: Cell, event: Event) -> bool:
        """Whether an event would change nothing at a broker; it does not happen."""
        ...

    def controller(self, cell: Cell, event: Event) -> tuple[Cell, Outcome]:
        """One event of the controller."""
        ...

    def start(self) -> tuple[list[Cell], Cell, tuple[Letter, ...]]:
        """Brokers and controller as they begin, and the first letters."""
        ...


@dataclass(slots=True)
class Step:
    """A state in the making. ``changed`` parts are put together by ``done``."""

    executor: Executor
    brokers: list[Cell]
    controller: Cell
    mail: list[Letter]
    net: list[Exchange]
    used: Used
    letters: list[Letter] = field(default_factory=list)

    def broker(self, broker: int, event: Event) -> Any:
        """One event of a broker."""
        self.brokers[broker - 1], out = self.executor.broker(broker, self.brokers[broker - 1], event)
        return out

    def decide(self, event: Event) -> Any:
        """One event of the controller; its letters are in the mail."""
        self.controller, (verdict, letters) = self.executor.controller(self.controller, event)
        self.mail += letters
        return verdict

    def state(self, broker: int) -> BrokerState:
        """Return a broker as it is."""
        value: BrokerState = self.brokers[broker - 1].value
        return value


class Cluster:
    """The possible actions, and their effects."""

    def __init__(self, bounds: Bounds, executor: Executor) -> None:
        self.bounds = bounds
        self.executor = executor
        self.cells = executor.cells
        self.ids = tuple(range(1, bounds.replicas + 1))

    def begin(self) -> ClusterState:
        """Empty logs; with Kafka's controller the topic was just created."""
        brokers, controller, letters = self.executor.start()
        of = self.cells.of
        return ClusterState(tuple(brokers), controller, of(tuple(sorted(letters))), of(()), of(Used()), of(()))

    # Possible actions

    def actions(self, state: ClusterState) -> Iterator[Action]:
        """All that may happen next. Not everything changes something."""
        for letter in state.mail.value:
            if state.brokers[letter.broker - 1].value.running:
                yield ("leader_and_isr", letter)
        for broker, cell in enumerate(state.brokers, 1):
            replica = cell.value.replica
            if replica is None:
                continue
            if replica.leads is not None:
                yield from self._of_leader(state, broker, replica.leads)
            if replica.follows is not None:
                yield from self._of_follower(state, broker)
        for exchange in state.net.value:
            yield from self._of_message(state, exchange)
        if self.bounds.controller == MODEL:
            yield from self._of_models(state.controller.value)
        else:
            yield from self._of_kafka(state)

    def _of_leader(self, state: ClusterState, broker: int, leads: LeaderSnapshot) -> Iterator[Action]:
        if state.used.value.records < self.bounds.records:
            yield ("produce", broker)
        if leads.pending is not None:
            if self.bounds.messages:
                yield ("alter", broker, True)
                yield ("alter", broker, False)
            return
        end = len(state.brokers[broker - 1].value.records)
        behind = [other for other, known in leads.remotes if other in leads.isr and known != end]
        for spared in chain.from_iterable(combinations(behind, count) for count in range(len(behind))):
            yield ("shrink", broker, spared)

    def _of_follower(self, state: ClusterState, follower: int) -> Iterator[Action]:
        own: BrokerState = state.brokers[follower - 1].value
        assert own.replica is not None
        follows = own.replica.follows
        assert follows is not None
        if follows.failed or follows.in_flight:
            return
        if state.brokers[follows.leader - 1].value.running:
            for may_join in self._join_choices(state, follower, follows.leader):
                yield ("round", follower, may_join, True)
                yield ("round", follower, may_join, False)
        if len(state.net.value) < self.bounds.messages:
            yield ("ask", follower)

    @staticmethod
    def _join_choices(state: ClusterState, follower: int, leader: int) -> tuple[bool, ...]:
        """Return the choices; two only if the leader may propose the follower."""
        replica = state.brokers[leader - 1].value.replica
        leads = None if replica is None else replica.leads
        return (False, True) if leads and leads.pending is None and follower not in leads.isr else (False,)

    def _of_message(self, state: ClusterState, exchange: Exchange) -> Iterator[Action]:
        if exchange.response is None:
            for may_join in self._join_choices(state, exchange.follower, exchange.request.leader):
                yield ("arrive", exchange, may_join)
        else:
            yield ("receive", exchange)
        yield ("lose", exchange)

    def _of_models(self, now: ControllerState) -> Iterator[Action]:
        if now.leader_epoch >= self.bounds.elections:
            return
        for member in now.isr:
            if member != now.leader:
                yield ("elect", member)
            if member == now.leader or len(now.isr) > 1:
                yield ("drop", member)

    def _of_kafka(self, state: ClusterState) -> Iterator[Action]:
        now, used, bounds = state.controller.value, state.used.value, self.bounds
        if now.registered != now.known:
            yield ("look",)
        if now.leader not in {NO_LEADER, 1}:
            yield ("rebalance",)
        for broker, cell in enumerate(state.brokers, 1):
            own: BrokerState = cell.value
            if not own.running:
                yield ("start", broker)
                if now.registered[broker - 1]:
                    yield ("expire", broker)
                continue
            if not now.registered[broker - 1]:
                yield ("register", broker)
            elif used.sessions < bounds.sessions:
                yield ("expire", broker)
            if used.crashes < bounds.crashes or used.power_cuts < bounds.power_cuts:
                if own.replica is not None and own.replica.high_watermark != own.checkpoint:
                    yield ("checkpoint", broker)
                if used.crashes < bounds.crashes:
                    yield ("kill", broker)
            if used.power_cuts < bounds.power_cuts:
                least = max(own.reported, own.safe_end, len(state.committed.value))
                for keep in range(least, len(own.records)):
                    yield ("power", broker, keep)

    # Effects of actions

    def apply(self, state: ClusterState, action: Action) -> ClusterState | None:
        """Return the state after an action; None if it goes beyond the bounds.

        Raises:
            AssertionError: the core finds one of its invariants broken.
        """
        step = Step(
            self.executor,
            list(state.brokers),
            state.controller,
            list(state.mail.value),
            list(state.net.value),
            state.used.value,
        )
        _ACTIONS[action[0]](self, step, *action[1:])
        if step.controller.value.leader_epoch > self.bounds.elections:
            return None
        return self._done(state, step)

    def _done(self, before: ClusterState, step: Step) -> ClusterState:
        of = self.cells.of
        brokers = tuple(step.brokers)
        mail, net, used = before.mail, before.net, before.used
        if len(step.mail) != len(mail.value) or step.controller is not before.controller:
            mail = of(tuple(sorted(step.mail)))
        if step.net != list(net.value):
            net = of(tuple(sorted(step.net, key=repr)))
        if step.used is not used.value:
            used = of(step.used)
        committed = before.committed
        if self.bounds.controller == KAFKA:
            longest = committed.value
            for cell in brokers:
                own: BrokerState = cell.value
                if own.replica is not None and own.replica.high_watermark > len(longest):
                    longest = (*longest, *own.records[len(longest) : own.replica.high_watermark])
            committed = of(longest)
        return ClusterState(brokers, step.controller, mail, net, used, committed)

    def _leader_and_isr(self, step: Step, letter: Letter) -> None:
        step.broker(letter.broker, ("leader_and_isr", letter))
        self._sort_out(step, letter.broker)

    @staticmethod
    def _sort_out(step: Step, broker: int) -> None:
        """Letters that a broker refuses now are refused for ever: its epochs never fall."""
        own = step.brokers[broker - 1]
        step.mail[:] = [
            letter
            for letter in step.mail
            if letter.broker != broker or not step.executor.refuses(broker, own, ("leader_and_isr", letter))
        ]

    def _produce(self, step: Step, leader: int) -> None:
        step.used = step.used._replace(records=step.used.records + 1)
        step.broker(leader, ("produce", step.used.records))

    def _round(self, step: Step, follower: int, may_join: bool, responded: bool) -> None:
        request = step.broker(follower, ("ask", self._number(step, follower)))
        response = step.broker(request.leader, ("fetch", follower, request, may_join))
        if may_join:
            self._judged_at_once(step, request.leader)
        if responded:
            step.broker(follower, ("answer", request.leader, request.number, response))
        else:
            step.broker(follower, ("fail", request.leader, request.number))

    @staticmethod
    def _number(step: Step, follower: int) -> int:
        taken = {number for number, _ in step.state(follower).rounds}
        return next(number for number in range(1, len(taken) + 2) if number not in taken)

    def _ask(self, step: Step, follower: int) -> None:
        request: FollowerRequest = step.broker(follower, ("ask", self._number(step, follower)))
        step.net.append(Exchange(follower, orphaned=False, request=request, response=None))

    def _arrive(self, step: Step, exchange: Exchange, may_join: bool) -> None:
        step.net.remove(exchange)
        request = exchange.request
        if step.state(request.leader).running:
            response = step.broker(request.leader, ("fetch", exchange.follower, request, may_join))
            if not exchange.orphaned:
                step.net.append(exchange._replace(response=response))
        else:
            self._give_up(step, exchange)

    def _receive(self, step: Step, exchange: Exchange) -> None:
        step.net.remove(exchange)
        request = exchange.request
        step.broker(exchange.follower, ("answer", request.leader, request.number, exchange.response))

    def _lose(self, step: Step, exchange: Exchange) -> None:
        step.net.remove(exchange)
        self._give_up(step, exchange)

    @staticmethod
    def _give_up(step: Step, exchange: Exchange) -> None:
        if not exchange.orphaned:
            step.broker(exchange.follower, ("fail", exchange.request.leader, exchange.request.number))

    def _shrink(self, step: Step, leader: int, spared: tuple[int, ...]) -> None:
        step.broker(leader, ("shrink", spared))
        self._judged_at_once(step, leader)

    def _judged_at_once(self, step: Step, leader: int) -> None:
        """If no message is on its way, a proposal and its verdict are one step, too."""
        replica = step.state(leader).replica
        if not self.bounds.messages and replica is not None and replica.leads is not None and replica.leads.pending:
            self._alter(step, leader, reported=True)

    def _alter(self, step: Step, leader: int, reported: bool) -> None:
        own = step.state(leader)
        assert own.replica is not None
        assert own.replica.leads is not None
        proposal = own.replica.leads.pending
        verdict = step.decide(("alter", leader, own.incarnation, proposal))
        if reported and verdict is not None:
            step.broker(leader, ("verdict", proposal, verdict))

    def _elect(self, step: Step, leader: int) -> None:
        step.decide(("elect", leader))

    def _drop(self, step: Step, member: int) -> None:
        step.decide(("drop", member))

    def _look(self, step: Step) -> None:
        step.decide(("look",))

    def _rebalance(self, step: Step) -> None:
        step.decide(("rebalance",))

    def _checkpoint(self, step: Step, broker: int) -> None:
        step.broker(broker, ("checkpoint",))

    def _kill(self, step: Step, broker: int) -> None:
        step.used = step.used._replace(crashes=step.used.crashes + 1)
        self._dies(step, broker, ("kill",))

    def _power(self, step: Step, broker: int, keep: int) -> None:
        step.used = step.used._replace(power_cuts=step.used.power_cuts + 1)
        self._dies(step, broker, ("power", keep))

    def _dies(self, step: Step, broker: int, event: Event) -> None:
        step.broker(broker, event)
        for exchange in list(step.net):
            if exchange.follower == broker:
                step.net.remove(exchange)
                if exchange.response is None:
                    step.net.append(exchange._replace(orphaned=True))

    def _start(self, step: Step, broker: int) -> None:
        incarnation = step.state(broker).incarnation + 1
        step.broker(broker, ("start", incarnation))
        step.decide(("register", broker, incarnation))
        self._sort_out(step, broker)

    def _expire(self, step: Step, broker: int) -> None:
        if step.state(broker).running:
            step.used = step.used._replace(sessions=step.used.sessions + 1)
        step.decide(("unregister", broker))

    def _register(self, step: Step, broker: int) -> None:
        incarnation = step.state(broker).incarnation + 1
        step.broker(broker, ("register", incarnation))
        step.decide(("register", broker, incarnation))
        self._sort_out(step, broker)


_ACTIONS = {
    name: getattr(Cluster, f"_{name}")
    for name in [
        "leader_and_isr",
        "produce",
        "round",
        "ask",
        "arrive",
        "receive",
        "lose",
        "shrink",
        "alter",
        "elect",
        "drop",
        "look",
        "rebalance",
        "checkpoint",
        "kill",
        "power",
        "start",
        "expire",
        "register",
    ]
}
