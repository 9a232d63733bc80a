"""Consequences of a person's actions in a cluster that is driven by hand.

Broker cores, effect executor and controller decisions are the same as in broker processes.

Rules:
    1. After an action the controllers decide all they can, and whoever has something to send sends it: these are
       messages in flight. Unless messages wait for a hand (``Settings.by_hand``, or one is delayed), they arrive, the
       oldest first, until there is none that can, and time goes on by as much as watermarks need to reach followers.
    2. A message waits while its link is partitioned or its receiver's process is paused. One to a
       dead process is lost: the connection breaks.
    3. Every action takes a millisecond, so that no two have the same time. Sessions of processes that are dead or
       paused end ``SESSION_TIMEOUT_MS`` after that, when time goes on so far.
    4. The controller is whoever registers ``/controller`` first: here the living broker with the lowest id.
    5. A broken invariant is noted and the history goes on. If a core's own assertion fails, the history ends there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

from tidegauge.partition import INTERNAL_TOPICS, TopicPartition, partition_named
from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_controller.rules.election import Choose
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.messages import CLIENT, LOST, Message
from tidegauge_proof.hand.post import Post
from tidegauge_proof.hand.settings import (
    LAG_TIME_MAX_MS,
    RULE_NAMES,
    SESSION_TIMEOUT_MS,
    WITH_SHARE_GROUPS,
    Settings,
    placed_at,
)
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.controllers import chosen
from tidegauge_proof.simulator.controllers.ports import Store, Term
from tidegauge_proof.simulator.follower_rounds import FETCH_WAIT_MS
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.sim_partition import FIRST_NUMBER, SimPartition
from tidegauge_proof.simulator.witness import Witness
from tidegauge_proof.simulator.world import World

_PRODUCE_TIMEOUT_MS = 30_000
_MOST_ARRIVALS = 2_000
"""Messages that may arrive in one action: far more than any needs, so that no action lasts for ever."""
_MOST_WAITS = 12
_RECORD = re.compile(r"\bm(\d+)\b")


_RESPONSES = frozenset({kinds.FETCH_RESPONSE, kinds.VERDICT, kinds.COORDINATOR_RESPONSE})
"""A response takes the way of its call."""
INTERNAL = tuple(
    partition_named(one, 0) for one in ("__transaction_state", "__consumer_offsets", "__share_group_state")
)
"""Partitions of internal topics, the last of which only a cluster with share groups has."""


class _Configured:
    """A store whose topics have settings, and whose controllers may elect by a rule that is tried."""

    def __init__(self, store: Store, config: Callable[[str], Mapping[str, str]], election: Choose | None) -> None:
        self._store = store
        self._config = config
        self._election = election

    def term(self, broker_id: int, session: int) -> Term:
        """Elect a broker as the controller."""
        return chosen.electing_by(self._store.term(broker_id, session), self._election)

    def add_topic(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> str:
        """Store a new topic with these settings."""
        return self._store.add_topic(topic, assignment, self._config(topic))

    def __getattr__(self, name: str) -> Any:
        """Return everything else of the store."""
        return getattr(self._store, name)


class Read:
    """A consumer's read: the broker, the action, and the records' numbers."""

    def __init__(self, broker: int, step: int, numbers: list[int]) -> None:
        self.broker, self.step, self.numbers = broker, step, numbers


class HandCluster:
    """The cluster without its actions.

    Args:
        settings: of the cluster and its topic.

    Attributes:
        world: the simulated world.
        post: the messages.
        events: what event logs would have, in order; ``time_ms`` is virtual.
        data: the partitions of ``orders``.
        produced: the clients' batches, in the order in which they were sent.
        reads: what consumers have read.
        held: the followers whose fetches are held.
        parted: the brokers that do not reach ZooKeeper.
        step: number of the action that was done last.
        broken: the first broken invariant in words, with its name; empty while all hold.
        has_ended: whether a core's own assertion has failed: nothing can be done any more.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        internal = INTERNAL[: settings.coordinators + 1] if settings.coordinators else ()
        names = [*(partition_named(AT.topic, place) for place in range(settings.partitions)), *internal]
        minima = [self._min_insync(at.topic) for at in names]
        self.checkers = [Witness(least, may_lose=not settings.flushes) for least in minima]
        self.checker = self.checkers[0]
        election = None if settings.own is None else settings.own.election
        core = CoreSettings(
            replica_lag_time_max_ms=LAG_TIME_MAX_MS,
            replica_fetch_backoff_ms=100,
            truncation_rule=RULE_NAMES[settings.rule],
            tried=settings.own,
            coordinator_topics=frozenset({AT.topic, *INTERNAL_TOPICS, INTERNAL[-1].topic}),
            refuses_previous_incarnation=not chosen.trusts_restarted_brokers(),
        )
        rules = TopicRules(
            min_insync_replicas=settings.min_insync_replicas, unclean_leader_election=bool(settings.unclean)
        )
        self.world = World(
            settings.assignment,
            core,
            rules,
            *self.checkers,
            names=names if internal else None,
            controller=settings.controller,
            controllers=lambda: cast("Store", _Configured(chosen.DEFAULT(), self._config_of, election)),
            assignments=self._assignments(internal) if settings.placed else None,
            rules_of={
                at.topic: replace(
                    rules,
                    min_insync_replicas=least,
                    unclean_leader_election=bool(self._config_of(at.topic)),
                )
                for at, least in zip(names, minima, strict=True)
            }
            if settings.placed
            else None,
        )
        for broker in self.world.brokers.values():
            broker.flushes = bool(settings.flushes)
        self.world.clients.numbers = 1  # records are m1, m2, ..., as in the stories
        self.data = self.world.partitions[: settings.partitions]
        for further in self.data[1:]:
            further.clients.numbers += 1
        self.events = self.world.keep_events()
        self.post = Post(self.world, is_held=bool(settings.by_hand))
        self.produced: list[Produced] = []
        self.reads: list[Read] = []
        self.held: set[int] = set()
        self.parted: set[int] = set()
        self.step = 0
        self.has_ended = False
        self.assertion = ""
        self.silent_since: dict[int, int] = {}
        self.outcomes: dict[int, str] = {}
        self.names_of_batches: dict[int, list[str]] = {}
        """The names of records of internal partitions, by the CRC of their batch."""
        self.coordination: Any = None
        self.applications: Any = None
        self.processes: Any = None
        if settings.coordinators:
            self._begin_coordinators()
        self.guarded(lambda: self.rest(at_start=True))

    def label(self, number: int) -> str:
        """Return a record's name.

        The story's name for it, else ``m3``, and ``m1.3`` on partition 1.
        """
        partition, place = divmod(number, FIRST_NUMBER)
        known = self.settings.names.get("record", {}).get(number)
        return known or (f"m{partition}.{place}" if partition else f"m{number}")

    def labelled(self, text: str) -> str:
        """Return a sentence with the story's names of records."""
        return _RECORD.sub(lambda found: self.label(int(found[1])), text)

    def number_of(self, batch_crc: int) -> int | None:
        """Return the number of a batch's first record, if a client sent it."""
        numbers = (one.clients.number_of.get(batch_crc) for one in self.data)
        return next((number for number in numbers if number is not None), None)

    def _config_of(self, topic: str) -> Mapping[str, str]:
        """Return the settings of a topic.

        With assignments of their own, internal topics keep Kafka's default.
        """
        is_unclean = self.settings.unclean and (topic == AT.topic or not self.settings.placed)
        return {"unclean.leader.election.enable": "true"} if is_unclean else {}

    def _min_insync(self, topic: str) -> int:
        settings = self.settings
        if not settings.placed or topic == AT.topic:
            return settings.min_insync_replicas
        return max(1, settings.min_insync_transactions) if topic == INTERNAL[0].topic else 1

    def _assignments(self, internal: Sequence[TopicPartition]) -> list[tuple[int, ...]]:
        """Return the assignment of each partition.

        An internal topic without a place of its own is placed as another one.
        """
        settings = self.settings
        transactions = settings.transactions_at or settings.offsets_at or settings.placed
        places = (transactions, settings.offsets_at or transactions, transactions)
        return [*settings.data_assignments, *(placed_at(one) for one in places[: len(internal)])]

    @property
    def broken(self) -> str:
        """The first broken invariant in words; empty while all hold."""
        broken = next((one.broken for one in self.checkers if one.broken is not None), None)
        return self.assertion or ("" if broken is None else str(broken))

    def _begin_coordinators(self) -> None:
        """Begin the coordinators and their clients; their modules are read when they are wanted, which takes time."""
        begin = import_module("tidegauge_proof.hand.coordination").Coordination
        self.coordination = begin(self.world, self.post.send, transactions_v2=bool(self.settings.transactions_v2))
        self.coordination.lose = self.post.lose
        if self.settings.placed:
            self.coordination.group_topic = AT.topic
        applications = import_module("tidegauge_proof.hand.applications").Applications
        self.applications = applications(self.coordination, self.has_sent, self.post.send)
        processes = import_module("tidegauge_proof.hand.client_processes").ClientProcesses
        self.processes = processes(self)
        self.applications.add(self.processes)
        if self.settings.coordinators == WITH_SHARE_GROUPS:
            leaders = import_module("tidegauge_proof.hand.share_leaders").ShareLeaders(self.coordination)
            members = import_module("tidegauge_proof.hand.share_members").ShareMembers
            self.applications.add(members(self.coordination, leaders, self.post.send))

    def has_sent(self, produced: Produced) -> None:
        """Take in a batch that a client has sent."""
        if produced not in self.produced:
            self.produced.append(produced)
        self.outcomes.setdefault(produced.first_number, f"{produced.outcome} {produced.error} {produced.base_offset}")

    def guarded(self, act: Callable[[], str | None]) -> str | None:
        """Do it; a failed assertion of a core ends the history, as it would end a broker."""
        try:
            return act()
        except AssertionError as broken:
            self.has_ended = True
            self.assertion = self.assertion or f"the core's own invariant: {broken}"
            return f"A core's own assertion failed: {broken}"

    def date_events(self) -> None:
        """Date the events since the last call to now."""
        for event in reversed(self.events):
            if "time_ms" in event:
                return
            event["time_ms"] = self.world.now_ms

    # Consequences (rule 1)

    def rest(self, *, at_start: bool = False) -> None:
        """Let messages arrive until there is none that can (rule 1)."""
        waits = _MOST_WAITS
        for _ in range(_MOST_ARRIVALS):
            self.send_all()
            arriving = next((one for one in self.post.in_flight() if self.may_arrive(one, by_hand=False)), None)
            if arriving is not None:
                self.arrive(arriving)
            elif self._is_behind() and waits and (at_start or not self.settings.by_hand):
                waits -= 1
                self.pass_time(FETCH_WAIT_MS)
            else:
                return

    def send_all(self) -> None:
        """Let controllers decide, and send all due requests."""
        self._elect()
        for broker_id in [b for b in self.world.controllers if b not in self.world.paused]:
            while (term := self.world.controllers.get(broker_id)) is not None and term.is_busy:
                self.world.decide(broker_id, 1000)
                if broker_id not in self.world.controllers:
                    self.world.note("controller", broker_id, state="resigned", controller_epoch=term.epoch)
        if not self.settings.by_hand:
            for broker_id in sorted(self.world.without_session):
                if self.world.is_up(broker_id) and broker_id not in self.parted:
                    self.resign(broker_id)
                    self.world.register_again(broker_id)
        if self.coordination is not None:
            self.coordination.settle()
        self.post.collect(self.held)
        self.date_events()

    def resign(self, broker_id: int) -> None:
        """End the term of a controller whose session has ended, before its broker registers again."""
        term = self.world.controllers.get(broker_id)
        if term is not None and self.world.elected != broker_id:
            self.world.end_term(broker_id)
            self.world.note("controller", broker_id, state="resigned", controller_epoch=term.epoch)

    def _elect(self) -> None:
        world = self.world
        if world.elected is None:
            able = [b for b in sorted(world.brokers) if world.is_up(b) and b not in world.without_session | self.parted]
            if able:
                world.elect(able[0])

    def _is_behind(self) -> bool:
        """Whether a follower that fetches by itself does not know its leader's high watermark yet."""
        return any(self._follower_is_behind(partition) for partition in self.world.partitions)

    def _follower_is_behind(self, at: SimPartition) -> bool:
        state = at.state_now
        leader = at.brokers.get(state.leader)
        if leader is None or leader.partition is None or not self.world.is_up(state.leader):
            return False
        for broker_id, broker in at.brokers.items():
            if broker_id == state.leader or broker_id in self.held or not self.world.is_up(broker_id):
                continue
            if self.world.is_cut(broker_id, state.leader) or broker.partition is None:
                continue
            if (
                broker.partition.high_watermark < leader.partition.high_watermark
                or broker.partition.log_end_offset < leader.partition.log_end_offset
            ):
                return True
        return False

    # Messages

    def may_arrive(self, message: Message, *, by_hand: bool) -> bool:
        """Return whether a message can arrive now; note why it can't."""
        message.note = self.obstacle(message)
        return not message.note and (by_hand or not message.is_held)

    def obstacle(self, message: Message) -> str:
        """Return why a message can't arrive now, in words; empty if it can."""
        source, target = message.source, message.target
        world = self.world
        if target != CLIENT and target in world.paused:
            return f"broker {target} is paused"
        # A response uses the connection of its call.
        caller, called = (target, source) if message.kind in _RESPONSES else (source, target)
        if CLIENT not in {caller, called} and world.is_cut(caller, called):
            return f"the link from {caller} to {called} is partitioned"
        if source in world.paused and message.kind not in {
            *_RESPONSES,
            kinds.FETCH,
            kinds.STRAY,
        }:
            return f"broker {source} is paused"
        if message.kind == kinds.PRODUCE or target == CLIENT:
            return ""
        if not world.brokers[target].is_running and message.kind in {kinds.CONTROL, kinds.ALTER_PARTITION}:
            return f"broker {target} is down"
        return ""

    def arrive(self, message: Message, *, again: bool = False) -> None:
        """Hand a message over; with ``again`` it stays in flight, to arrive once more."""
        self.post.hand_over(message, again=again, produce=self._arrive_produce)

    def _arrive_produce(self, message: Message) -> None:
        produced: Produced = message.payload
        if not self.world.is_up(message.target):
            message.fate, message.note = LOST, f"broker {message.target} does not take connections"
            if produced.first_sequence < 0 and produced.outcome == "info" and not produced.error:
                produced.error = "NETWORK_EXCEPTION"
            return
        partition = self.world.partitions[0]
        self.world.arrive_produce(message.target, produced.acks, _PRODUCE_TIMEOUT_MS, [(partition, produced)])

    def look_at_clients(self) -> None:
        """Draw the responses that clients have got."""
        for produced in self.produced:
            outcome = f"{produced.outcome} {produced.error} {produced.base_offset}"
            known = self.outcomes.get(produced.first_number)
            if known is not None and known != outcome:
                self.outcomes[produced.first_number] = outcome
                sent = next(one for one in reversed(self.post.kept) if _carries(one, produced))
                self.post.responded(sent, self._response_text(produced))

    def _response_text(self, produced: Produced) -> str:
        if produced.outcome == "ok":
            return f"Produce response({kinds.names_of_records(produced)}: offset {produced.base_offset})"
        return f"Produce response({kinds.names_of_records(produced)}: {produced.error or 'no response'})"

    def expire(self, broker_id: int) -> None:
        """End a broker's session, and let the controller hear of it."""
        self.world.expire(broker_id)
        self.send_all()

    def pass_time(self, ms: int) -> None:
        """Let time go on; sessions of silent brokers end when their time is over (rule 3)."""
        self.world.pass_time(ms)
        if self.coordination is not None:
            self.coordination.step_timers()
            self.applications.time_passes()
        for broker_id, since in sorted(self.silent_since.items()):
            silent_ms = self.world.now_ms - since
            if silent_ms >= SESSION_TIMEOUT_MS and broker_id not in self.world.without_session:
                self.expire(broker_id)


def _carries(message: Message, produced: Produced) -> bool:
    """Whether a message carried a client's batch."""
    return message.payload is produced or getattr(message.payload, "produced", None) is produced
