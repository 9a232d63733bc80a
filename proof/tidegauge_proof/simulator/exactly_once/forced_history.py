"""Histories in which a fault strikes at a named step of a transaction (``forced_steps``), not when the dice say so.

The cluster is ``stage``'s with three brokers, and without faults of its own: possible events happen in turn, one
thing at a time, so that every step of a transaction is passed. Each forced fault waits for its step, then strikes. The
sessions of dead and paused brokers end at once, elections are clean, and the broker is back a while later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tidegauge.collections_off import collections_off
from tidegauge.transaction_marker import Outcome
from tidegauge_proof.simulator.actions import swarm_of
from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld
from tidegauge_proof.simulator.exactly_once.clients import OUTPUTS, Copier, Reader
from tidegauge_proof.simulator.exactly_once.cluster import OFFSETS, TRANSACTIONS, Call, Internal
from tidegauge_proof.simulator.exactly_once.forced_steps import FENCING, LOADING, SENDING, STEPS, Reached, Watch
from tidegauge_proof.simulator.exactly_once.joint_actions import copier_asks, member_asks, simple_commit
from tidegauge_proof.simulator.exactly_once.network import TIMELY, Message
from tidegauge_proof.simulator.exactly_once.stage import TIMEOUTS_MS, JointHistory, Stage, count, judge, staged
from tidegauge_proof.simulator.groups.members import REBALANCE_MS, SESSION_MS
from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.swarm import MUST_SURVIVE, Swarm


def _swarm() -> Swarm:
    """Return the settings of all these histories: three brokers, one log directory each."""
    swarm = swarm_of(0, "kip-320", MUST_SURVIVE, directories=1)  # compiled it is no dataclass, and can't be replaced
    swarm.replicas, swarm.min_insync_replicas, swarm.flushes = (1, 2, 3), 2, False
    return swarm


_STEPS: Mapping[str, Reached] = {"": lambda _: True, **STEPS, **FENCING, **LOADING, **SENDING}
_LEADERS = {"transactions": TRANSACTIONS, "offsets": OFFSETS, "output": OUTPUTS[0]}
"""Whose leader dies, by name."""
_TURN_MS, _IDLE_MS = 5, 200
_HEARTBEAT_MS = 3_000
_REQUEST_TIMEOUT_MS = 3_000
_PAST_SESSION_MS = SESSION_MS + 4_000
_TURNS_AWAY = 60
"""How many things happen before a broker or a copier that was struck is back."""
_TURNS_ISOLATED = 600
"""As many are enough for producers to find the next coordinator, and to commit there."""
_TURNS_AFTER, _TURNS_AT_MOST = 250, 3000
"""How many things happen between the last fault and the end; at most so many if no transaction is committed."""
_LIMIT = 6_000


class Forced(NamedTuple):
    """A fault that strikes when a step is reached.

    Attributes:
        step: its name; empty: at once, when the fault before has struck.
        fault: ``kill``; ``kill-silently``, which loses all messages on their way, too; ``bounce``, a kill and a start
            within the session; ``pause``, until after the election; ``isolate``, which partitions it from ZooKeeper and
            the other brokers, but not from its clients, until long after the election. Of a copier ``restart``;
            ``pause``, until its transaction has timed out; ``pause-past-session``, until its session as a member has.
            Of the network ``hold``, which keeps the messages of a kind, and ``release``, which delivers them whoever
            still wants them.
            ``commit``, of the simple consumer's offset. Empty: nothing happens but that the step is reached.
        whom: ``transactions``, ``offsets`` or ``output``, whose leader it is; ``copier``; the kind of messages that are
            held, ``verification`` for a response to one, ``markers of offsets`` for WriteTxnMarkers to the leader of
            __consumer_offsets; else empty.
    """

    step: str
    fault: str
    whom: str


class ForcedHistory(JointHistory):
    """The result; ``struck`` has the faults that found their step."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.struck: list[Forced] = []

    @property
    def strikes(self) -> int:
        """How many faults found their step."""
        return len(self.struck)


def forced_history_of(seed: int, *forced: Forced, tells: bool = False) -> ForcedHistory:
    """Run a seed with faults at named steps, one after the other; the same arguments give the same history.

    Args:
        seed: of what clients choose, and of the timeout of transactions.
        forced: the faults in their order.
        tells: whether to keep what each step did.
    """
    history = ForcedHistory(seed)
    with collections_off():
        stage = staged(seed, TIMELY, _swarm())
        stage.cluster.network.is_calm = True
        turns = _Turns(stage, history, list(forced))
        history.play(_LIMIT, turns.turn, lambda: judge(history, stage, judges=True), tells=tells, is_over=turns.is_over)
    count(history, stage)
    return history


class _Turns:
    """Lets one thing happen after the other."""

    def __init__(self, stage: Stage, history: ForcedHistory, forced: list[Forced]) -> None:
        self._stage = stage
        self._history = history
        self._forced = forced
        self._watch = Watch(stage.cluster)
        self._turns = 0
        self._struck_at = self._committed = 0
        self._returns: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._held: list[Message] = []
        self._isolated: set[int] = set()
        self._beaten_ms: dict[str, int] = {}
        self._waiting: dict[str, tuple[object, int]] = {}
        self._in_flight: dict[Internal, int] = {}
        self._of_members: dict[str, dict[str, tuple[object, int]]] = {}
        self._acts = self._in_turn()

    def is_over(self) -> bool:
        """Return whether all faults have struck, and a transaction was committed since."""
        if self._forced or self._returns or self._turns - self._struck_at <= _TURNS_AFTER:
            return False
        return self._committed_now() > self._committed or self._turns - self._struck_at > _TURNS_AT_MOST

    def _committed_now(self) -> int:
        stories = [story for copier in self._stage.copiers for story in copier.stories]
        return sum(story.is_acknowledged and story.end is Outcome.COMMIT for story in stories)

    def turn(self) -> str:
        """Let the next thing happen, then strike if it has led to the step."""
        words = next(self._acts)
        cluster = self._stage.cluster
        cluster.settle()
        self._turns += 1
        self._watch.look()
        if self._forced and _STEPS[self._forced[0].step](self._watch):
            forced = self._forced.pop(0)
            self._strike(forced)
            self._note_strike()
            self._history.struck.append(forced)
            words = f"{words} | {forced.step}: {forced.fault} {forced.whom}"
        else:
            self._return_one()
        cluster.settle()
        return words

    def _return_one(self) -> None:
        """Bring back a broker or a copier whose time has come."""
        ready = next((one for one in self._returns if one[0]()), None)
        if ready is not None:
            self._returns.remove(ready)
            ready[1]()
            self._note_strike()

    # Faults

    def _note_strike(self) -> None:
        self._struck_at, self._committed = self._turns, self._committed_now()

    def _strike(self, forced: Forced) -> None:
        if forced.whom == "copier":
            self._strike_copier(forced)
        elif forced.fault == "hold":
            self._hold(forced.whom)
        elif forced.fault == "release":
            held, self._held = self._held, []
            for message in held:
                message.arrive()
        elif forced.fault == "commit":
            simple_commit(self._stage)
        elif forced.fault:
            self._strike_broker(forced)

    def _hold(self, kind: str) -> None:
        network = self._stage.cluster.network
        leader_of_offsets = self._stage.cluster.partitions[OFFSETS].state_now.leader

        def is_one(message: Message) -> bool:
            if kind == "verification":
                return message.words.startswith("AddPartitionsToTxnResult")
            if kind == "markers of offsets":
                return message.kind == "WriteTxnMarkers" and message.words.endswith(f"to {leader_of_offsets}")
            return message.kind == kind

        is_wanted = [is_one(message) for message in network.messages]
        self._held += [one for one, is_one in zip(network.messages, is_wanted, strict=True) if is_one]
        network.messages = [one for one, is_one in zip(network.messages, is_wanted, strict=True) if not is_one]

    def _strike_broker(self, forced: Forced) -> None:
        world, cluster = self._stage.world, self._stage.cluster
        broker_id = cluster.partitions[_LEADERS[forced.whom]].state_now.leader
        if forced.fault == "kill-silently":
            messages, cluster.network.messages = cluster.network.messages, []
            for message in messages:
                message.lose()
        if forced.fault == "isolate":
            others = [one for one in world.brokers if one != broker_id]
            self._isolated.add(broker_id)
            world.cut_links |= {(one, broker_id) for one in others} | {(broker_id, one) for one in others}
        elif forced.fault == "pause":
            world.paused.add(broker_id)
        else:
            world.kill(broker_id)
        if forced.fault != "isolate":
            self._hang_up(broker_id)
        if forced.fault == "bounce":
            world.start(broker_id)
        else:
            world.expire(broker_id)
            back = self._turns + (_TURNS_ISOLATED if forced.fault == "isolate" else _TURNS_AWAY)
            self._returns.append((lambda: self._turns >= back, lambda: self._bring_back(broker_id)))
        if world.elected is None:
            world.elect(next(one for one in world.brokers if world.is_up(one) and one not in world.without_session))

    def _hang_up(self, broker_id: int) -> None:
        """Let clients notice that their connections to a broker are closed."""
        for copier in self._stage.copiers:
            if isinstance(copier.in_flight, Call) and broker_id in {*copier.brokers.values(), copier.member.broker}:
                copier.take(None)
            copier.brokers = {role: -1 if one == broker_id else one for role, one in copier.brokers.items()}
            if copier.member.broker == broker_id:
                copier.member.in_flight.clear()
                copier.member.broker = -1

    def _bring_back(self, broker_id: int) -> None:
        world = self._stage.world
        if not world.brokers[broker_id].is_running:
            world.start(broker_id)
        else:
            world.paused.discard(broker_id)
            self._isolated.discard(broker_id)
            world.cut_links.clear()
            if broker_id in world.controllers and broker_id != world.elected:
                world.end_term(broker_id)
            world.register_again(broker_id)
            world.pass_time(0)
        if world.elected is None:
            world.elect(broker_id)

    def _strike_copier(self, forced: Forced) -> None:
        copiers = self._stage.copiers
        writing = [one for one in copiers if one.in_flight is not None and not isinstance(one.in_flight, Call)]
        asking = [one for one in copiers if isinstance(one.in_flight, Call)]
        copier = next(iter((writing + asking) if forced.step.startswith("data") else (asking + writing)), copiers[0])
        if forced.fault == "restart":
            copier.restart()
            return
        copier.is_paused = True
        world = self._stage.world
        back_ms = world.now_ms + (TIMEOUTS_MS[-1] if forced.fault == "pause" else 0) + _PAST_SESSION_MS

        def resume() -> None:
            copier.is_paused = False

        self._returns.append((lambda: world.now_ms >= back_ms, resume))

    # Possible events

    def _in_turn(self) -> Iterator[str]:
        stage, world = self._stage, self._stage.world
        while True:
            is_idle = True
            for act in self._all():
                words = act()
                if words:
                    is_idle = False
                    yield words
            world.pass_time(_IDLE_MS if is_idle else _TURN_MS)
            stage.cluster.step_timers()
            self._time_out()
            yield "time passes"

    def _all(self) -> Iterator[Callable[[], str | None]]:
        stage, world = self._stage, self._stage.world
        yield self._control
        for copier in stage.copiers:
            yield partial(copier_asks, stage, copier)
            yield partial(self._join_or_beat, copier)
            yield self._deliver
            yield self._deliver
        for coordinators in (stage.cluster.transactions, stage.cluster.groups):
            yield partial(self._load, coordinators)
        for broker_id in world.brokers:
            yield partial(self._replicate, broker_id)
        for reader in stage.readers:
            yield partial(self._read, reader)

    def _control(self) -> str | None:
        """Let the controller decide, and deliver what it has decided and what leaders propose."""
        world = self._stage.world
        if world.elected is None or world.elected not in world.controllers:
            return None
        before = world.inputs
        world.decide_all()
        for broker_id in world.brokers:
            if world.is_up(broker_id) and broker_id not in self._isolated:
                world.deliver_all(broker_id)
                while world.proposals.may_propose(broker_id):
                    world.proposals.propose(broker_id, world.elected)
        world.decide_all()
        verdicts, world.traffic.verdicts = world.traffic.verdicts, []
        for verdict in verdicts:
            world.proposals.tell(verdict, world.now_ms)
        return "the controller decides" if world.inputs != before else None

    def _join_or_beat(self, copier: Copier) -> str | None:
        now_ms = self._stage.world.now_ms
        beats = now_ms - self._beaten_ms.get(copier.name, 0) >= _HEARTBEAT_MS
        words = member_asks(self._stage, copier, beats=beats)
        if words and beats:
            self._beaten_ms[copier.name] = now_ms
        return words

    def _deliver(self) -> str | None:
        """Deliver the oldest message."""
        messages = self._stage.cluster.network.messages
        if not messages:
            return None
        message = messages.pop(0)
        if not message.is_wanted():
            message.lose()
            return f"lost: {message.words}"
        message.arrive()
        return message.words

    def _load(self, coordinators: CoordinatorWorld[Any]) -> str | None:
        loading = coordinators.loading()
        if not loading:
            return None
        coordinators.go_on_loading(loading[0])
        return f"broker {loading[0].broker.broker_id} reads on"

    def _replicate(self, broker_id: int) -> str | None:
        """Let a follower fetch, if it lacks records, or knows of a lower high watermark than its leader."""
        world = self._stage.world
        if not world.is_up(broker_id) or broker_id in self._isolated:
            return None
        before = world.inputs
        is_behind = any(self._is_behind(partition, broker_id) for partition in world.partitions)
        return f"{broker_id} fetches" if is_behind and world.whole_round(broker_id) and world.inputs != before else None

    def _is_behind(self, partition: SimPartition, broker_id: int) -> bool:
        leader = self._watch.leader(partition.at)
        mine = partition.brokers[broker_id]
        if leader is None or leader is mine or leader.partition is None:
            return False
        if mine.partition is None:
            return True
        uncommitted = leader.partition.high_watermark < leader.log.log_end_offset
        return (
            uncommitted
            or mine.log.log_end_offset < leader.log.log_end_offset
            or mine.partition.high_watermark < leader.partition.high_watermark
            or broker_id not in partition.state_now.isr
        )

    def _read(self, reader: Reader) -> str | None:
        leader = self._watch.leader(reader.at)
        return None if leader is None else self._stage.cluster.read(reader, leader.broker_id)

    # Patience

    def _time_out(self) -> None:
        """Give up requests without a response for too long."""
        stage, now_ms = self._stage, self._stage.world.now_ms
        for copier in stage.copiers:
            call, since_ms = self._waiting.get(copier.name, (None, now_ms))
            if call is not copier.in_flight:
                self._waiting[copier.name] = copier.in_flight, now_ms
            elif call is not None and not copier.is_paused and now_ms - since_ms >= _REQUEST_TIMEOUT_MS:
                copier.give_up(forgets=True)
            self._time_out_member(copier)
        in_flight = {one: self._in_flight.get(one, now_ms) for one in stage.cluster.in_flight}
        self._in_flight = in_flight
        for internal, since_ms in in_flight.items():
            if now_ms - since_ms >= _REQUEST_TIMEOUT_MS:
                internal.finish(None)

    def _time_out_member(self, copier: Copier) -> None:
        """Give up what a copier has asked its group's coordinator; a phase of a rebalance may take as long as that."""
        now_ms, in_flight = self._stage.world.now_ms, copier.member.in_flight
        before = self._of_members.get(copier.name, {})
        since = self._of_members[copier.name] = {
            kind: before[kind] if kind in before and before[kind][0] is call else (call, now_ms)
            for kind, call in in_flight.items()
        }
        limits_ms = {"phase": REBALANCE_MS + _REQUEST_TIMEOUT_MS}
        late = [
            kind for kind, (_, at_ms) in since.items() if now_ms - at_ms >= limits_ms.get(kind, _REQUEST_TIMEOUT_MS)
        ]
        if late and not copier.is_paused:
            for kind in late:
                del in_flight[kind]
            copier.member.broker = -1
