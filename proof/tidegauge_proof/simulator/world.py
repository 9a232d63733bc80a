"""A cluster in one process: real cores, the controller's real decisions, and all between them in a caller's hands.

Nothing moves by itself. Every method is one event: a request is asked, arrives, is answered, each perhaps late, twice
or never; a process is killed; a session ends; a controller decides one step further. Time is a number that
``pass_time`` raises. What is on its way between processes stands in lists; the caller delivers it, or does not.

One partition, all brokers hold a replica of it. After every event of a broker ``checker.look_at(broker)`` is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegauge.control import (
    NO_LEADER,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.znodes import PartitionStateNode, state_path
from tidegauge_broker.replica.messages import (
    CONSUMER,
    CoreSettings,
    EpochAnswer,
    EpochRound,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchRound,
    ProducePartition,
    ProduceRequest,
    TopicRules,
    Wait,
)
from tidegauge_controller.decisions.alter_partition import process_alter_partition
from tidegauge_controller.decisions.broker_events import process_leader_and_isr_response
from tidegauge_controller.decisions.leaders import process_controlled_shutdown, rebalance_leaders
from tidegauge_controller.decisions.topic_events import process_topic_change
from tidegauge_proof.simulator.clients import Clients, Produced
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker
from tidegauge_proof.simulator.memory_log import START_MS
from tidegauge_proof.simulator.memory_zookeeper import MemoryZooKeeper
from tidegauge_proof.simulator.sim_controller import SimController

if TYPE_CHECKING:
    from tidegauge_proof.simulator.checker import Checker

FETCH_WAIT_MS = 500
RESPONSE_MAX_BYTES = 10 * 1024 * 1024
_STATE = state_path(*AT)
_RETRIED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors after which a broker sends its proposal again (as its AlterPartitionManager does)."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One round of a follower, from the request to the answer. It is its own token at the leader."""

    follower: MemoryBroker
    life: int
    broker_epoch: int
    chosen: FetchRound | EpochRound
    answer: FetchedPartition | EpochAnswer | None = None


@dataclass(slots=True, eq=False)
class Consumed:
    """A consumer's fetch."""

    offset: int


@dataclass(slots=True)
class Verdict:
    """The answer to one request with an ISR proposal, on its way to a broker's process; None: there will be none."""

    broker: MemoryBroker
    request: object
    proposal: IsrProposal
    verdict: IsrVerdict | None


@dataclass(slots=True)
class Traffic:
    """What is on its way."""

    requests: list[Exchange] = field(default_factory=list)
    answers: list[Exchange] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    strays: list[tuple[int, Any]] = field(default_factory=list)
    """Control requests of controllers that are gone, or to brokers that were."""


class World:
    """The cluster.

    Args:
        replicas: the broker ids, in assignment order.
        settings: of every broker.
        rules: the topic's settings.
        checker: looks at a broker after each of its events.
        controller: a broker without a replica that is the controller; None: the first replica is.
    """

    def __init__(
        self,
        replicas: Sequence[int],
        settings: CoreSettings,
        rules: TopicRules,
        checker: Checker,
        controller: int | None = None,
    ) -> None:
        self.replicas = tuple(replicas)
        self.checker = checker
        self.now_ms = START_MS
        self.zookeeper = MemoryZooKeeper()
        first = self.replicas[0] if controller is None else controller
        ids = sorted({first, *replicas})
        self.brokers = {b: MemoryBroker(b, settings, rules, looked_at=self._look_at) for b in ids}
        self.traffic = Traffic()
        self.open_rounds: dict[int, list[Exchange]] = {b: [] for b in self.brokers}
        self.outbox: dict[int, list[IsrProposal]] = {b: [] for b in self.brokers}
        self.asking: dict[int, IsrProposal] = {}
        """The proposal that a broker has under way: one at a time."""
        self.sessions = dict.fromkeys(self.brokers, 0)
        """The number of each broker's newest session."""
        self.without_session: set[int] = set(self.brokers)
        self.paused: set[int] = set()
        self.leaving: set[int] = set()
        """Brokers whose leaders have been moved: they may go."""
        self.unheard: set[int] = set()
        """Brokers that asked to shut down and got a refusal or no answer: they go all the same, in the end."""
        self.cut_links: set[tuple[int, int]] = set()
        self._questions: dict[int, object] = {}
        self._asked_epochs = dict.fromkeys(self.brokers, 0)
        """The epoch of the latest controller that each broker has asked."""
        self.controllers: dict[int, SimController] = {}
        self.elected: int | None = None
        """Whose ``/controller`` znode exists."""
        self.state_now = PartitionStateNode(NO_LEADER, -1, self.replicas, 0)
        """The partition's state in ZooKeeper."""
        self.clients = Clients()
        self.events: list[dict[str, Any]] | None = None
        self._sending: Produced | None = None
        checker.world = self
        for broker_id in self.brokers:
            self.start(broker_id)
        self.elect(first)
        self.decide_all()
        self.zookeeper.add_topic(AT.topic, {0: self.replicas})
        self.controllers[first].add(process_topic_change)
        self.decide_all()
        for broker_id in self.brokers:
            self.deliver_all(broker_id)

    def keep_events(self) -> list[dict[str, Any]]:
        """From now on state changes and faults are kept, as event logs have them; the caller adds the time."""
        self.events = []
        for broker in self.brokers.values():
            broker.events = self.events
        for term in self.controllers.values():
            term.events = self.events
        return self.events

    def note(self, kind: str, broker_id: int, **fields: object) -> None:
        """Something that is done to a broker."""
        if self.events is not None:
            source = "lab" if kind == "fault" else f"broker-{broker_id}"
            self.events.append({"source": source, "kind": kind, "broker": broker_id, **fields})

    def _look_at(self, broker: MemoryBroker) -> None:
        """After each event of a broker: take what its core answered, then check."""
        told = broker.told
        if told.fetched:
            for token, answer in told.fetched:
                if isinstance(token, Exchange):
                    token.answer = answer
                    self.traffic.answers.append(token)
                elif isinstance(token, Consumed):
                    self.checker.consumed(broker, token, answer)
            told.fetched = []
        if told.proposals:
            self.outbox[broker.broker_id] += told.proposals
            told.proposals = []
        self.checker.look_at(broker)
        if told.produced:
            for token, result in told.produced:
                if isinstance(token, Produced):
                    at_once = token is self._sending
                    self.clients.answered(token, result.error, result.base_offset, at_once=at_once)
                    if result.error is ErrorCode.NONE:
                        self.checker.acknowledged(broker, token, result)
            told.produced = []

    # What can be seen

    @property
    def inputs(self) -> int:
        """What the state machines under test were given so far: calls of cores, and requests that ZooKeeper answered.

        A core asked what to fetch next counts where it began a round.
        """
        return self.zookeeper.requests + sum(broker.inputs for broker in self.brokers.values())

    def is_up(self, broker_id: int) -> bool:
        """Whether a broker's process runs and is not paused."""
        return self.brokers[broker_id].is_running and broker_id not in self.paused

    def is_cut(self, source: int, target: int) -> bool:
        """Whether calls of one broker do not get to another. An answer takes the way of its call."""
        return (source, target) in self.cut_links

    def leaders(self) -> list[int]:
        """Brokers that believe that they lead."""
        paused = self.paused
        return [
            broker_id
            for broker_id, broker in self.brokers.items()
            if broker.is_running
            and broker_id not in paused
            and (partition := broker.partition) is not None
            and partition.leader_role is not None
        ]

    # Clients

    def produce(self, broker_id: int, acks: int, record_count: int, timeout_ms: int) -> None:
        """A client sends a batch, once."""
        self._send(broker_id, self.clients.send(acks, record_count), timeout_ms)

    def produce_idempotently(self, broker_id: int, record_count: int, timeout_ms: int) -> Produced:
        """The idempotent producer sends its batch, perhaps not for the first time."""
        produced = self.clients.send_idempotent(record_count)
        self._send(broker_id, produced, timeout_ms)
        return produced

    def _send(self, broker_id: int, produced: Produced, timeout_ms: int) -> None:
        broker = self.brokers[broker_id]
        request = ProduceRequest(produced.acks, timeout_ms, [ProducePartition(AT, produced.data)])
        self._sending = produced
        try:
            broker.execute(broker.core.produce(request, produced, self.now_ms))
        finally:
            self._sending = None

    def consume(self, broker_id: int, offset: int) -> None:
        """A consumer reads what is there."""
        broker = self.brokers[broker_id]
        wanted = FetchPartition(AT, offset, 1 << 20)
        request = FetchRequest(CONSUMER, 0, 1, 1 << 20, [wanted])
        broker.execute(broker.core.fetch(request, Consumed(offset), self.now_ms))

    # Followers

    def ask(self, broker_id: int) -> list[Exchange]:
        """The broker asks each leader that it follows, where it is time."""
        broker = self.brokers[broker_id]
        asked: list[Exchange] = []
        followed = broker.core.leaders_followed()
        for leader in sorted(followed) if len(followed) > 1 else followed:
            chosen = broker.core.next_round(leader, self.now_ms)
            if not isinstance(chosen, Wait):
                exchange = Exchange(broker, broker.life, broker.broker_epoch, chosen)
                if isinstance(chosen, FetchRound):
                    broker.reported = max(broker.reported, chosen.partitions[0].fetch_offset)
                asked.append(exchange)
                self.open_rounds[broker_id].append(exchange)
                broker.inputs += 1
        return asked

    def arrive(self, exchange: Exchange, wait_ms: int = FETCH_WAIT_MS) -> None:
        """The request reaches its leader; where there is no process, the follower hears that."""
        chosen = exchange.chosen
        leader = self.brokers[chosen.leader]
        if not leader.is_running:
            self.give_up(exchange)
        elif isinstance(chosen, EpochRound):
            leader.inputs += 1
            exchange.answer = leader.core.offset_for_leader_epoch(chosen.partitions[0])
            self.traffic.answers.append(exchange)
        else:
            wanted = list(chosen.partitions)
            request = FetchRequest(
                exchange.follower.broker_id, wait_ms, 1, RESPONSE_MAX_BYTES, wanted, exchange.broker_epoch
            )
            leader.execute(leader.core.fetch(request, exchange, self.now_ms))

    def answer(self, exchange: Exchange) -> None:
        """The answer reaches the follower, if that is still the process that asked."""
        broker, chosen, answer = exchange.follower, exchange.chosen, exchange.answer
        if not broker.is_running or broker.life != exchange.life:
            return
        self._close(exchange)
        if isinstance(answer, FetchedPartition):
            effects = broker.core.fetch_answered(chosen.leader, chosen.request_id, [answer], self.now_ms)
        else:
            assert answer is not None
            effects = broker.core.epochs_answered(chosen.leader, chosen.request_id, [answer], self.now_ms)
        broker.execute(effects)

    def give_up(self, exchange: Exchange) -> None:
        """The follower waits for this round no longer; the request or its answer may come all the same."""
        broker = exchange.follower
        if broker.is_running and broker.life == exchange.life:
            self._close(exchange)
            chosen = exchange.chosen
            broker.execute(broker.core.round_failed(chosen.leader, chosen.request_id, self.now_ms))

    def _close(self, exchange: Exchange) -> None:
        rounds = self.open_rounds[exchange.follower.broker_id]
        if exchange in rounds:
            rounds.remove(exchange)

    def whole_round(self, broker_id: int) -> bool:
        """Ask, arrive, answer, without a hitch and without waiting for data; says whether it was time to ask."""
        asked = self.ask(broker_id)
        for exchange in asked:
            leader = exchange.chosen.leader
            if not self.is_up(leader) or self.is_cut(broker_id, leader):
                self.traffic.requests.append(exchange)
                continue
            self.arrive(exchange, wait_ms=0)
            if exchange.answer is not None:
                self.traffic.answers.remove(exchange)
                self.answer(exchange)
        return bool(asked)

    # The controller

    def elect(self, broker_id: int) -> None:
        """The broker becomes the controller; its fail-over is still to come."""
        assert self.elected is None
        if broker_id in self.controllers:
            self.end_term(broker_id)
        self.elected = broker_id
        term = self.controllers[broker_id] = SimController(self.zookeeper, broker_id, self.sessions[broker_id])
        term.events = self.events
        self.note("controller", broker_id, state="elected", controller_epoch=term.context.epoch)

    def decide(self, broker_id: int, requests: int) -> None:
        """The controller in this broker goes on by so many requests to ZooKeeper."""
        term = self.controllers[broker_id]
        has_session = broker_id not in self.without_session
        before = self.zookeeper.zxid
        reads = term.session == self.sessions[broker_id]
        if not term.advance(requests, has_session=has_session, reads=reads):
            self.end_term(broker_id)
        if self.zookeeper.zxid != before and _STATE in self.zookeeper.nodes:
            self.state_now = self.zookeeper.state(AT)
            self.checker.look_at_state()

    def decide_all(self) -> None:
        """The elected controller decides all it can, and nobody hears of it yet."""
        while self.elected is not None and self.controllers[self.elected].is_busy:
            self.decide(self.elected, 1000)

    def end_term(self, broker_id: int) -> None:
        """The controller in this broker resigns, or its process is gone."""
        term = self.controllers.pop(broker_id)
        term.end()
        self.traffic.strays += term.strays

    def rebalance(self, broker_id: int) -> None:
        """The automatic preferred election."""
        self.controllers[broker_id].add(rebalance_leaders)

    def deliver(self, term: SimController, broker_id: int, *, again: bool = False) -> None:
        """The next control request of a controller arrives at a broker, and its answer at the controller.

        With ``again`` the answer is lost, so that it will be sent once more.
        """
        queue = term.queues[broker_id]
        message = queue[0] if again else queue.popleft()
        response = self.hand_over(broker_id, message)
        if response is not None and not again and self.controllers.get(term.broker_id) is term:
            term.add(lambda context: process_leader_and_isr_response(context, broker_id, response))

    def deliver_all(self, broker_id: int) -> None:
        """All that waits for a broker at the elected controller."""
        term = None if self.elected is None else self.controllers.get(self.elected)
        while term is not None and term.queues.get(broker_id):
            self.deliver(term, broker_id)

    def hand_over(self, broker_id: int, message: Any) -> PartitionsResponse | None:
        """A control request arrives; the answer to a LeaderAndIsr is returned."""
        broker = self.brokers[broker_id]
        match message:
            case UpdateMetadataRequest():
                broker.inputs += 1
                if broker.core.check_controller_epoch(message.header) is ErrorCode.NONE:
                    broker.metadata.apply(message)
            case StopReplicaRequest():
                _, effects = broker.core.stop_replica(message, self.now_ms)
                broker.execute(effects)
            case LeaderAndIsrRequest():
                response: PartitionsResponse = broker.leader_and_isr(message, self.now_ms)
                return response
        return None

    # ISR changes

    def may_ask(self, broker_id: int, controller: int) -> bool:
        """Whether a broker may take a controller for the one there is: ``/controller`` never goes back for a reader.

        So a proposal that a later controller may have written is not refused by an earlier one, on which the rule for
        a refusal stands (kafka-behaviour 1.8).
        """
        return self.controllers[controller].context.epoch >= self._asked_epochs[broker_id]

    def propose(self, broker_id: int, controller: int) -> None:
        """The broker's next proposal reaches a controller; it waits there for its turn."""
        self._asked_epochs[broker_id] = self.controllers[controller].context.epoch
        broker = self.brokers[broker_id]
        proposal = self.outbox[broker_id].pop(0)
        request = AlterPartitionRequest(broker_id, broker.broker_epoch, [proposal])
        self.asking[broker_id] = proposal
        asked = self._questions[broker_id] = object()

        def done(response: AlterPartitionResponse | None) -> None:
            if self._questions.get(broker_id) is not asked:
                return  # the broker has given this request up
            verdict = None
            if response is not None and response.error is ErrorCode.NONE:
                verdict = response.partitions[0]
            elif response is not None and response.error not in _RETRIED:
                verdict = IsrVerdict(AT, response.error)
            self.traffic.verdicts.append(Verdict(broker, asked, proposal, verdict))

        self.controllers[controller].add(lambda context: process_alter_partition(context, request), done)

    def ask_again(self, broker_id: int) -> None:
        """The broker waits no longer for a verdict and will send its proposal anew; the first may still be taken."""
        self._questions.pop(broker_id, None)
        self.outbox[broker_id].insert(0, self.asking.pop(broker_id))

    def tell(self, verdict: Verdict) -> None:
        """A verdict reaches the leader. Where there is none, the same proposal is sent again."""
        broker = verdict.broker
        if self._questions.get(broker.broker_id) is not verdict.request:
            return  # given up while the verdict was on its way, or the process is another
        del self._questions[broker.broker_id], self.asking[broker.broker_id]
        if verdict.verdict is None:
            self.outbox[broker.broker_id].insert(0, verdict.proposal)
        else:
            broker.execute(broker.core.isr_verdict(verdict.proposal, verdict.verdict, self.now_ms))

    # Processes, disks, sessions

    def kill(self, broker_id: int) -> None:
        """The process is gone at once; its session lives on, the disk keeps all that was written."""
        self.brokers[broker_id].kill()
        self.note("fault", broker_id, action="kill")
        self.paused.discard(broker_id)
        self.leaving.discard(broker_id)
        self.unheard.discard(broker_id)
        self.open_rounds[broker_id] = []
        self.outbox[broker_id] = []
        self.asking.pop(broker_id, None)
        self._questions.pop(broker_id, None)
        if broker_id in self.controllers:
            self.end_term(broker_id)
        self._lose_requests_at(broker_id)

    def _lose_requests_at(self, broker_id: int) -> None:
        """Followers' requests that the dead process had taken: the connection breaks."""
        for rounds in list(self.open_rounds.values()):
            for exchange in list(rounds):
                is_parked = exchange.answer is None and exchange not in self.traffic.requests
                if is_parked and exchange.chosen.leader == broker_id:
                    self.give_up(exchange)

    def cut_power(self, broker_id: int, keep: int, torn: int = 0) -> None:
        """The machine is gone, and with it what lies beyond an offset, but for ``torn`` bytes of the next batch."""
        self.kill(broker_id)
        self.note("fault", broker_id, action="power-cut")
        broker = self.brokers[broker_id]
        self.checker.loses_power(broker, keep)
        broker.lose_beyond(keep, torn)
        self.checker.check_isr()

    def expire(self, broker_id: int) -> None:
        """ZooKeeper ends the session of a broker that is dead, paused or cut off."""
        self.without_session.add(broker_id)
        self.note("session", broker_id, state="expired")
        self.zookeeper.unregister_broker(broker_id)
        if self.elected == broker_id:
            self.elected = None
        self._brokers_changed()

    def start(self, broker_id: int) -> None:
        """A new process registers; over a session that still lives this is a bounce."""
        broker = self.brokers[broker_id]
        if self.elected == broker_id:
            self.elected = None
        self.note("broker", broker_id, state="starting")
        broker.start(self._register(broker_id))

    def register_again(self, broker_id: int) -> None:
        """A process that lost its session gets a new one. A controller in it may be slow to see that it is none."""
        broker = self.brokers[broker_id]
        broker.broker_epoch = self._register(broker_id)
        broker.core.set_broker_epoch(broker.broker_epoch)

    def _register(self, broker_id: int) -> int:
        self.without_session.discard(broker_id)
        self.sessions[broker_id] += 1
        broker_epoch = self.zookeeper.register_broker(broker_id)
        self._brokers_changed()
        return broker_epoch

    def _brokers_changed(self) -> None:
        for broker_id, term in self.controllers.items():
            if broker_id not in self.without_session and self.sessions[broker_id] == term.session:
                term.brokers_changed = True

    def leave(self, broker_id: int, controller: int) -> None:
        """The broker asks the controller to move its leaders away; it goes when it hears how far that is done.

        Where it does not hear, it goes without (KafkaServer.controlledShutdown), here once the faults have ended. It
        can't stay as it is: its replicas may have been stopped, and nobody starts them again in the same leader epoch.
        """
        broker = self.brokers[broker_id]
        broker_epoch, life = broker.broker_epoch, broker.life

        def done(outcome: tuple[ErrorCode, list[Any]] | None) -> None:
            if broker.is_running and broker.life == life:
                is_done = outcome is not None and outcome[0] is ErrorCode.NONE
                (self.leaving if is_done else self.unheard).add(broker_id)

        self.controllers[controller].add(
            lambda context: process_controlled_shutdown(context, broker_id, broker_epoch), done
        )

    def stop(self, broker_id: int) -> None:
        """A broker that may leave ends: logs flushed, high watermark written, session closed."""
        broker = self.brokers[broker_id]
        broker.write_checkpoint()
        broker.flush()
        self.kill(broker_id)
        broker.ended_in_order()
        if broker_id not in self.without_session:
            self.expire(broker_id)

    def pass_time(self, ms: int) -> None:
        """Time goes on, and each running core looks what is due."""
        self.now_ms += ms
        for broker_id, broker in self.brokers.items():
            if self.is_up(broker_id):
                broker.execute(broker.core.tick(self.now_ms))
