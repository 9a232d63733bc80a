"""Only what may have news is looked at in a round, and no result differs from looking at all of it.

Two clusters live through the same random history. In one the leader looks at each partition of each fetch, the follower
at each partition that follows, and a session compares all its partitions: the plain rule. In the other
``StandingFetch`` and ``StandingRounds`` keep account of changes. After each event both have asked, named,
responded, proposed and noted the same in the same order, and every replica shows the same state, the times at which
followers were caught up too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from core_harness import AT, Cluster
from memory_broker import Broker, MemoryLog, make_batch, result_of

from tidegauge.control import ControlHeader, IsrProposal, IsrVerdict, StopReplicaPartition, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import DeleteLog, Effect, RespondToDeleteRecords, RespondToFetch, RespondToProduce
from tidegauge_broker.replica.messages import (
    CONSUMER,
    CoreSettings,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchRound,
    ProducePartition,
    ProduceRequest,
    RecordsToDelete,
    TopicRules,
    Wait,
)
from tidegauge_broker.replica.quota import UNLIMITED, ReplicationQuota
from tidegauge_broker.server.replication.fetch_session import FetchSession
from tidegauge_broker.server.replication.follower_session import FollowerSession, SessionFetch

BROKERS = (1, 2, 3)
PARTITIONS = [TopicPartition(AT.topic, number) for number in range(6)]
WAIT_MS = 500
STEPS = 150
SEEDS = range(30)


class PlainSession:
    """A session at a leader that looks at everything (``FetchSession`` without ``StandingFetch``)."""

    def __init__(self) -> None:
        self.standing: dict[TopicPartition, FetchPartition] = {}
        self.offsets: dict[TopicPartition, tuple[int, int]] = {}

    def request(self, asked: SessionFetch) -> list[FetchPartition]:
        for named in asked.forgotten:
            self.standing.pop(named.topic_partition, None)
            self.offsets.pop(named.topic_partition, None)
        for _, wanted in asked.wanted:
            at = wanted.topic_partition
            before = self.standing.pop(at, None)
            if before is not None and before.current_leader_epoch != wanted.current_leader_epoch:
                self.offsets.pop(at, None)
            self.standing[at] = wanted
        return list(self.standing.values())

    def has_news(self, result: Any, records: bytes) -> bool:
        offsets = (result.high_watermark, result.log_start_offset)
        if result.error is not ErrorCode.NONE or result.diverging is not None:
            self.offsets.pop(result.topic_partition, None)
            return True
        if not records and self.offsets.get(result.topic_partition) == offsets:
            return False
        self.offsets[result.topic_partition] = offsets
        return True


@dataclass(eq=False)
class Sent:
    """A request on its way: a round, a write, a read or a deletion; with one number in both clusters."""

    number: int
    chosen: FetchRound | None = None
    session: FetchSession | PlainSession | None = None
    box: dict[object, Any] = field(default_factory=dict)
    process: object = None


class Side(Cluster):
    """One of the two clusters.

    Attributes:
        looks_at_all: whether it is the one with the plain rule.
        story: the events since the last comparison.
    """

    def __init__(self, *, looks_at_all: bool) -> None:
        self.looks_at_all = looks_at_all
        self.story: list[Any] = []
        self.links: dict[tuple[int, int], FollowerSession] = {}
        self.sessions: dict[tuple[int, int], FetchSession | PlainSession] = {}
        self.limits = dict.fromkeys(BROKERS, UNLIMITED)
        rules = TopicRules(leader_throttled_replicas=("*",))
        super().__init__(BROKERS, assignment=BROKERS, partitions=len(PARTITIONS), rules=rules)

    def make_broker(self, broker_id: int, settings: CoreSettings, rules: Any) -> Broker:
        side = self

        class Telling(Broker):
            def start(self, broker_epoch: int) -> None:
                super().start(broker_epoch)
                self.core.fetches.quota = ReplicationQuota(lambda: side.limits[broker_id])

            def delete(self, effect: DeleteLog) -> None:
                super().delete(effect)
                self._noted.pop(effect.topic_partition, None)

            def _change(self, at: TopicPartition, effect: Effect) -> MemoryLog:
                self.reported.discard(at)  # one request gives several partitions roles, and the first completes fetches
                return super()._change(at, effect)

            def execute(self, effects: Iterable[Effect]) -> list[Effect]:
                done = super().execute(effects)
                side.story += [(broker_id, _shown(effect)) for effect in done]
                return done

        return Telling(broker_id, settings, rules)

    def state(self) -> list[Any]:  # type: ignore[override]
        """Return the views of each broker's replicas, and how much waits."""
        return [
            (core.describe(self.now_ms), core.waiting_operations(), len(core.following.rounds), core.next_deadline_ms())
            for core in (broker.core for broker in self.brokers.values() if broker.is_running)
        ]

    def leader_of(self, at: TopicPartition) -> Broker | None:
        return next((b for b in self.brokers.values() if b.is_running and _leads(b, at)), None)

    # One event each

    def ask(self, number: int, follower: int, leader: int, only: TopicPartition | None) -> Sent | None:  # type: ignore[override]
        admits = (lambda _: True) if self.looks_at_all else None
        chosen = self.brokers[follower].core.next_round(
            leader, self.now_ms, admits if only is None else lambda at: at == only
        )
        self.story.append(chosen if isinstance(chosen, Wait) else (chosen.request_id, list(chosen.partitions)))
        if not isinstance(chosen, FetchRound):
            return None
        self.story.append(set(chosen.first_fetches))
        return Sent(number, chosen, process=self.brokers[follower].core)

    def send(self, sent: Sent, follower: int, *, in_session: bool, max_bytes: int) -> None:
        """Send a round to its leader, in the follower's session or, like a step of the lab, outside of any."""
        chosen = sent.chosen
        assert chosen is not None
        leader, epoch = self.brokers[chosen.leader], self.brokers[follower].broker_epoch
        if not in_session:
            partitions = list(chosen.partitions)
            request = FetchRequest(follower, WAIT_MS, 1, max_bytes, partitions, epoch)
        else:
            request = self._in_session(sent, chosen, follower, epoch, max_bytes)
        if not leader.is_running:
            return
        sent.box = leader.fetched
        leader.execute(leader.core.fetch(request, sent, self.now_ms))

    def _in_session(self, sent: Sent, chosen: FetchRound, follower: int, epoch: int, max_bytes: int) -> FetchRequest:
        key = (follower, chosen.leader)
        link = self.links.setdefault(key, FollowerSession())
        if self.looks_at_all:
            asked = link.next(chosen.partitions, {AT.topic: "id"}, chosen.first_fetches)
        else:
            asked = link.next_round(chosen, lambda _: "id")
        self.story.append((asked.is_full, list(asked.wanted), sorted(asked.forgotten)))
        if asked.is_full or key not in self.sessions:
            self.sessions[key] = PlainSession() if self.looks_at_all else FetchSession()
        session = sent.session = self.sessions[key]
        if isinstance(session, PlainSession):
            return FetchRequest(follower, WAIT_MS, 1, max_bytes, session.request(asked), epoch)
        return session.request(
            follower,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            changed=[wanted for _, wanted in asked.wanted],
            forgotten=[named.topic_partition for named in asked.forgotten],
            replica_epoch=epoch,
        )

    def collect(self, sent: Sent, follower: int) -> list[FetchedPartition]:
        """Make the response of what the core has given, as the wire does it a moment later."""
        assert sent.chosen is not None
        response: list[FetchedPartition] = sent.box[sent]
        if sent.session is not None:
            session = sent.session
            response = [one for one in response if session.has_news(result_of(one), one.records)]
            self.links[follower, sent.chosen.leader].responded(7)
        self.story.append(response)
        return response

    def take(self, sent: Sent, follower: int, response: Sequence[FetchedPartition]) -> None:
        broker, chosen = self.brokers[follower], sent.chosen
        assert chosen is not None
        if broker.is_running and broker.core is sent.process:
            effects = broker.core.fetch_response_received(chosen.leader, chosen.request_id, response, self.now_ms)
            broker.execute(effects)

    def give_up(self, sent: Sent, follower: int, *, closes: bool) -> None:
        """Lose a round at the follower; the leader loses the parked request with its connection."""
        broker, chosen = self.brokers[follower], sent.chosen
        assert chosen is not None
        if sent.session is not None:
            self.links[follower, chosen.leader].failed()
        leader = self.brokers[chosen.leader]
        if closes and leader.is_running:
            leader.core.cancel(sent)
        if broker.is_running and broker.core is sent.process:
            broker.execute(broker.core.round_failed(chosen.leader, chosen.request_id, self.now_ms))

    def write(self, number: int, partitions: Sequence[TopicPartition], acks: int) -> None:
        broker = self.leader_of(partitions[0])
        if broker is not None:
            data = make_batch("x" * (number % 90))
            request = ProduceRequest(acks, 3000, [ProducePartition(at, data) for at in partitions])
            broker.execute(broker.core.produce(request, Sent(number), self.now_ms))

    def read(self, number: int, at: TopicPartition, offset: int) -> None:
        """A consumer waits for records."""
        broker = self.leader_of(at)
        if broker is not None:
            request = FetchRequest(CONSUMER, WAIT_MS, 1, 1 << 20, [FetchPartition(at, offset, 1 << 20)])
            broker.execute(broker.core.fetch(request, Sent(number), self.now_ms))

    def delete(self, number: int, at: TopicPartition) -> None:
        broker = self.leader_of(at)
        if broker is not None:
            wanted = [RecordsToDelete(at, None)]
            broker.execute(broker.core.delete_records(wanted, 3000, Sent(number), self.now_ms))

    def retain(self, broker_id: int, at: TopicPartition) -> None:
        """Retention removes what lies below the high watermark."""
        broker = self.brokers[broker_id]
        partition = broker.core.partition(at)
        if partition is not None and at in broker.disk:
            broker.disk[at].log_start_offset = partition.high_watermark
            broker.execute(broker.core.log_start_advanced(at, partition.high_watermark))

    def stop(self, broker_id: int, at: TopicPartition, *, deletes: bool) -> None:
        broker = self.brokers[broker_id]
        header = ControlHeader(0, self.term.context.epoch, -1)
        request = StopReplicaRequest(header, [StopReplicaPartition(at, None, deletes)])
        broker.execute(broker.control_requests.stop_replica(request)[1])

    def fail(self, broker_id: int, at: TopicPartition) -> None:
        self.brokers[broker_id].executor.fail([at])
        self.story.append("failed")

    def judge(self, broker_id: int) -> tuple[IsrProposal, IsrVerdict] | None:
        return self.decide_isr(broker_id) if self.brokers[broker_id].proposals else None

    def restart(self, broker_id: int) -> None:
        """Kill a process and start it again; what it knew of its followers' sessions is lost."""
        self.kill(broker_id)
        self.expire_session(broker_id)
        self.deliver()
        self.start(broker_id)
        for key in [key for key in self.sessions if key[1] == broker_id]:
            del self.sessions[key]
            self.links[key].failed(is_lost=True)


def _leads(broker: Broker, at: TopicPartition) -> bool:
    partition = broker.core.partition(at)
    return partition is not None and partition.leader_role is not None


def _shown(effect: Effect) -> Any:
    """An effect as both clusters must have it; a fetch's results are compared when its response is made."""
    if isinstance(effect, RespondToFetch):
        return "fetch", effect.token.number, effect.max_bytes  # type: ignore[attr-defined]
    if isinstance(effect, (RespondToProduce, RespondToDeleteRecords)):
        return effect.token.number, effect.results  # type: ignore[attr-defined]
    return effect


class Twins:
    """Both clusters, and the history that they live through."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.sides = [Side(looks_at_all=True), Side(looks_at_all=False)]
        self.open: dict[tuple[int, int], list[Sent]] = {}
        self.steps: list[tuple[int, list[Sent]]] = []
        self.stepped: list[tuple[int, list[Sent]]] = []
        self.verdicts: list[tuple[int, list[Any]]] = []
        self.number = 0
        self.events = [
            (12, self.write),
            (30, self.ask),
            (30, self.respond),
            (3, self.lose),
            (2, self.step),
            (2, self.send_step),
            (2, self.respond_to_step),
            (4, self.read),
            (3, self.delete),
            (2, self.retain),
            (3, self.judge),
            (3, self.tell),
            (4, self.elect),
            (3, lambda: self.both("deliver")),
            (5, lambda: self.both("deliver", self.dice.choice(BROKERS))),
            (0.5, lambda: self.both("register_again", self.dice.choice(BROKERS))),
            (6, lambda: self.both("advance", self.dice.choice([1, 10, 200, 600, 4000, 16000]))),
            (1, self.stop),
            (0.3, lambda: self.both("fail", self.dice.choice(BROKERS), self.dice.choice(PARTITIONS))),
            (0.5, self.restart),
            (1, self.limit),
        ]

    def run(self, steps: int) -> None:
        self.compare("begin")
        weights = [weight for weight, _ in self.events]
        for _ in range(steps):
            [(_, event)] = self.dice.choices(self.events, weights)
            event()
            self.compare(event)

    def compare(self, event: object) -> None:
        plain, other = self.sides
        assert other.story == plain.story, event
        if self.dice.random() < 0.2:  # to look brings the followers' times up to date
            assert other.state() == plain.state(), event
        plain.story.clear()
        other.story.clear()

    def both(self, name: str, *arguments: Any, **named: Any) -> list[Any]:
        return [getattr(side, name)(*arguments, **named) for side in self.sides]

    def next(self) -> int:
        self.number += 1
        return self.number

    def partition(self) -> TopicPartition:
        """A partition; often one of the first two, so that others have no news."""
        return self.dice.choice(PARTITIONS[:2] if self.dice.random() < 0.7 else PARTITIONS)

    def write(self) -> None:
        first = self.partition()
        more = [at for at in PARTITIONS if at != first and self.dice.random() < 0.1]
        self.both("write", self.next(), [first, *more], self.dice.choice([-1, -1, 1]))

    def ask(self) -> None:
        pairs = [(f, leader) for f in BROKERS for leader in BROKERS if f != leader and (f, leader) not in self.open]
        if not pairs:
            return
        follower, leader = self.dice.choice(pairs)
        sent = self.both("ask", self.next(), follower, leader, None)
        assert (sent[0] is None) == (sent[1] is None)
        if sent[0] is not None:
            max_bytes = self.dice.choice([100, 250, 1 << 20])
            for side, one in zip(self.sides, sent, strict=True):
                side.send(one, follower, in_session=True, max_bytes=max_bytes)
            self.open[follower, leader] = sent

    def respond(self) -> None:
        done = [key for key, (plain, _) in self.open.items() if plain in plain.box]
        if not done:
            return
        key = self.dice.choice(done)
        sent = self.open.pop(key)
        responses = [side.collect(one, key[0]) for side, one in zip(self.sides, sent, strict=True)]
        for side, one, response in zip(self.sides, sent, responses, strict=True):
            side.take(one, key[0], response)

    def lose(self) -> None:
        if self.open:
            key = self.dice.choice(list(self.open))
            closes = self.dice.random() < 0.7
            for side, one in zip(self.sides, self.open.pop(key), strict=True):
                side.give_up(one, key[0], closes=closes)

    def step(self) -> None:
        """A round of one partition beside the others, as a step of the lab has it."""
        follower, leader = self.dice.sample(BROKERS, 2)
        sent = self.both("ask", self.next(), follower, leader, self.dice.choice(PARTITIONS))
        if sent[0] is not None:
            self.steps.append((follower, sent))
            if self.dice.random() < 0.5:
                for side, one in zip(self.sides, sent, strict=True):
                    side.give_up(one, follower, closes=False)

    def send_step(self) -> None:
        """Let it come to the leader late: the follower may have given it up, and have asked for more since."""
        if not self.steps:
            return
        follower, sent = self.steps.pop(0)
        for side, one in zip(self.sides, sent, strict=True):
            side.send(one, follower, in_session=False, max_bytes=1 << 20)
        self.stepped.append((follower, sent))

    def respond_to_step(self) -> None:
        done = [one for one in self.stepped if one[1][0] in one[1][0].box]
        if done:
            follower, sent = done[0]
            self.stepped.remove(done[0])
            for side, one in zip(self.sides, sent, strict=True):
                side.take(one, follower, side.collect(one, follower))

    def read(self) -> None:
        at = self.partition()
        leader = self.sides[0].leader_of(at)
        partition = None if leader is None else leader.core.partition(at)
        if partition is not None:
            self.both("read", self.next(), at, partition.high_watermark)

    def delete(self) -> None:
        self.both("delete", self.next(), self.partition())

    def retain(self) -> None:
        self.both("retain", self.dice.choice(BROKERS), self.partition())

    def judge(self) -> None:
        broker_id = self.dice.choice(BROKERS)
        verdicts = self.both("judge", broker_id)
        if verdicts[0] is not None:
            assert verdicts[0] == verdicts[1]
            self.verdicts.append((broker_id, verdicts))

    def tell(self) -> None:
        if self.verdicts:
            broker_id, verdicts = self.verdicts.pop(0)
            for side, (proposal, verdict) in zip(self.sides, verdicts, strict=True):
                side.tell_verdict(broker_id, proposal, verdict)

    def elect(self) -> None:
        leader = self.dice.choice(BROKERS)
        isr = [leader, *(one for one in BROKERS if one != leader and self.dice.random() < 0.6)]
        self.both("impose", leader, isr, self.partition())
        if self.dice.random() < 0.7:
            self.both("deliver")

    def stop(self) -> None:
        deletes = self.dice.random() < 0.5
        self.both("stop", self.dice.choice(BROKERS), self.dice.choice(PARTITIONS), deletes=deletes)

    def restart(self) -> None:
        broker_id = self.dice.choice(BROKERS)
        self.open = {key: sent for key, sent in self.open.items() if broker_id not in key}
        self.steps = [one for one in self.steps if one[0] != broker_id and one[1][0].chosen.leader != broker_id]
        self.stepped = [one for one in self.stepped if one[1][0].chosen.leader != broker_id]
        self.verdicts = [one for one in self.verdicts if one[0] != broker_id]
        self.both("restart", broker_id)

    def limit(self) -> None:
        broker_id, limit = self.dice.choice(BROKERS), self.dice.choice([1, UNLIMITED])
        for side in self.sides:
            side.limits[broker_id] = limit


@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_that_looks_only_at_what_may_have_news_is_one_that_looks_at_everything(seed: int) -> None:
    Twins(seed).run(STEPS)
