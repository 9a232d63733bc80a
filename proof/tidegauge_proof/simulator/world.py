"""A cluster in one process: real cores, the controller's real decisions, and all between them in a caller's hands.

Nothing moves by itself. Every method is one event: a request is sent, arrives, gets its response, each perhaps late,
twice or never; a process is killed, a session ends, a controller decides one step further. Time is a number that
``pass_time`` raises. Messages between processes are in lists; the caller delivers them, or does not.

One partition or more; all brokers hold a replica of each, unless assignments say otherwise. After every event of a
broker the checker of each partition looks at its replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from tidegauge.cluster_metadata import Leadership
from tidegauge.control import (
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition, partition_named
from tidegauge_broker.replica.messages import (
    CONSUMER,
    CoreSettings,
    FetchPartition,
    FetchRequest,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    TopicRules,
)
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.clients import Clients, Produced
from tidegauge_proof.simulator.controllers import chosen
from tidegauge_proof.simulator.controllers.ports import MakeStore, Term
from tidegauge_proof.simulator.follower_rounds import FollowerRounds
from tidegauge_proof.simulator.isr_proposals import IsrProposals
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker
from tidegauge_proof.simulator.memory_log import START_MS, MemoryLog
from tidegauge_proof.simulator.sim_partition import SimPartition, rotated
from tidegauge_proof.simulator.traffic import Consumed, Coordinators, Exchange, Sent, Traffic
from tidegauge_proof.simulator.wall_clocks import WallClocks, wall_clocks_of

if TYPE_CHECKING:
    from tidegauge_proof.simulator.checker import Checker

Batches = Sequence[tuple[SimPartition, Produced]]
_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up


class World(FollowerRounds):
    """The cluster.

    Args:
        replicas: the broker ids, in assignment order.
        settings: of every broker.
        rules: the topic's settings.
        checkers: one for each partition, which looks at its replica on a broker after each event of the broker.
        names: of the partitions; None: they are partitions of one topic.
        controller: a broker without a replica that is the controller; None: the first replica is.
        directories: the number of log directories of each broker.
        controllers: the kind of controllers: makes the store that they keep together.
        assignments: of the partitions, in their order; None: all brokers have all, each led by another one in turn.
        rules_of: the settings of topics that have others than ``rules``.
    """

    def __init__(
        self,
        replicas: Sequence[int],
        settings: CoreSettings,
        rules: TopicRules,
        *checkers: Checker,
        controller: int | None = None,
        directories: int = 1,
        names: Sequence[TopicPartition] | None = None,
        controllers: MakeStore = chosen.DEFAULT,
        assignments: Sequence[Sequence[int]] | None = None,
        rules_of: Mapping[str, TopicRules] | None = None,
    ) -> None:
        self.replicas = tuple(replicas)
        self.now_ms = START_MS
        self.store = controllers()
        first = self.replicas[0] if controller is None else controller
        placed = None if assignments is None else [tuple(one) for one in assignments]
        ids = sorted({first, *replicas, *(b for one in placed or () for b in one)})
        if names is None:
            names = [partition_named(AT.topic, partition) for partition in range(len(checkers))]
        self.brokers = {
            b: MemoryBroker(b, settings, rules, partitions=names, directories=directories, looked_at=self._look_at)
            for b in ids
        }
        self.partitions = [
            SimPartition(
                at, placed[place] if placed else rotated(self.replicas, place), self.brokers, self.store, checker
            )
            for place, (at, checker) in enumerate(zip(names, checkers, strict=True))
        ]
        for broker in self.brokers.values():
            broker.rules_of = rules_of or {}
        self._by_name = {partition.at: partition for partition in self.partitions}
        for checker in checkers:
            checker.reports_leaderships = checker.at.topic in settings.coordinator_topics
        self._checked = [(partition.checker, partition.brokers) for partition in self.partitions]
        self.traffic = Traffic()
        self.open_rounds = {b: [] for b in self.brokers}
        self.sessions = dict.fromkeys(self.brokers, 0)
        """The number of each broker's newest session."""
        self.without_session: set[int] = set(self.brokers)
        self.paused: set[int] = set()
        self.leaving: set[int] = set()
        """Brokers whose leaders have been moved: they may go."""
        self.unheard: set[int] = set()
        """Brokers that asked to shut down and got a refusal or no response: they go all the same, in the end."""
        self.cut_links: set[tuple[int, int]] = set()
        self.controllers: dict[int, Term] = {}
        self.proposals = IsrProposals(self.brokers, self.controllers, self.traffic)
        self.elected: int | None = None
        """Whose ``/controller`` znode exists."""
        self.unreported: set[int] = set()
        """Brokers with replicas offline of which no controller could be notified yet."""
        self.events: list[dict[str, Any]] | None = None
        self.tells = True
        """Whether actions describe what they have done."""
        self.coordinators: Coordinators | None = None
        """The runner of coordinators on these brokers, if there are any."""
        self.wall_clocks: WallClocks | None = None
        """Sets the brokers' wall clocks; None: they are right."""
        self._sending: Sent | None = None
        for broker_id in self.brokers:
            self.start(broker_id)
        self.elect(first)
        self.decide_all()
        for topic in dict.fromkeys(at.topic for at in names):
            assignment = {one.at.partition: one.replicas for one in self.partitions if one.at.topic == topic}
            self.store.add_topic(topic, assignment)
        self.controllers[first].topics_changed()
        self.decide_all()
        for broker_id in self.brokers:
            self.deliver_all(broker_id)

    def end(self) -> None:
        """Let go of the logs and of the clients' books, the most part of a history that has ended.

        The rest refers to itself in cycles, for which the garbage collector has to look.
        """
        for partition in self.partitions:
            partition.clients.end()
            for replica in partition.brokers.values():
                replica.log = MemoryLog()

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
        """After each event of a broker: take what its core responded, then check."""
        reported = broker.reported
        if reported.fetched:
            for token, responses in reported.fetched:
                if isinstance(token, Exchange):
                    token.response = responses
                    self.traffic.responses.append(token)
                elif isinstance(token, Consumed):
                    for response in responses:
                        at = response.topic_partition
                        partition = self._by_name[at]
                        partition.checker.consumed(partition.brokers[broker.broker_id], token.offsets[at], response)
            reported.fetched = []
        if reported.proposals:
            self.proposals.outbox[broker.broker_id] += reported.proposals
            reported.proposals = []
        if reported.leaderships:
            for change in reported.leaderships:
                partition = self._by_name[change.topic_partition]
                partition.checker.leadership_changed(partition.brokers[broker.broker_id], change)
                if self.coordinators is not None:
                    self.coordinators.leadership_changed(broker, change)
            reported.leaderships = []
        broker_id = broker.broker_id
        if reported.committed:
            for at, high_watermark in reported.committed.items():
                partition = self._by_name[at]
                partition.checker.was_committed(partition.brokers[broker_id], high_watermark)
            reported.committed = {}
        for checker, replicas in self._checked:
            checker.look_at(replicas[broker_id])
        if reported.produced:
            for token, results in reported.produced:
                if isinstance(token, Sent):
                    at_once = token is self._sending
                    for produced, result in zip(token.batches, results, strict=True):
                        self._produced(broker_id, produced, result, at_once=at_once)
                elif self.coordinators is not None:
                    self.coordinators.produced(broker, token, results)
            reported.produced = []
        if reported.has_failures:
            reported.has_failures = False
            for at in broker.executor.failed:
                replica = broker.replicas[at]
                if not replica.is_struck and replica.directory not in broker.offline_directories:
                    raise Violation("FailsAlone", f"{at} is offline on broker {broker_id} by no fault of its own")
            self.unreported.add(broker_id)
            self.report_failures(broker_id)

    def _produced(self, broker_id: int, produced: Produced, result: ProduceResult, *, at_once: bool) -> None:
        partition = self._by_name[result.topic_partition]
        partition.clients.responded(produced, result.error, result.base_offset, at_once=at_once)
        if result.error is _NONE:
            partition.checker.acknowledged(partition.brokers[broker_id], produced, result)

    # Visible state

    @property
    def checker(self) -> Checker:
        """The checker of the first partition."""
        return self.partitions[0].checker

    @property
    def clients(self) -> Clients:
        """The clients of the first partition."""
        return self.partitions[0].clients

    @property
    def state_now(self) -> Leadership:
        """The state of the first partition in ZooKeeper."""
        return self.partitions[0].state_now

    @property
    def inputs(self) -> int:
        """Number of inputs to the state machines under test: calls of cores, and requests that ZooKeeper served.

        A core asked what to fetch next counts if it began a round.
        """
        return self.store.requests + sum(broker.inputs for broker in self.brokers.values())

    def is_up(self, broker_id: int) -> bool:
        """Whether a broker's process runs and is not paused."""
        return self.brokers[broker_id].is_running and broker_id not in self.paused

    def is_cut(self, source: int, target: int) -> bool:
        """Whether calls of one broker do not get to another. A response takes the way of its call."""
        return (source, target) in self.cut_links

    def leading(self) -> list[tuple[int, SimPartition]]:
        """Brokers that believe that they lead, each with the partition."""
        paused = self.paused
        return [
            (broker_id, partition)
            for partition in self.partitions
            for broker_id, replica in partition.brokers.items()
            if broker_id not in paused and replica.leads
        ]

    def leaders(self) -> list[int]:
        """Brokers that believe that they lead the first partition."""
        return [broker_id for broker_id, partition in self.leading() if partition is self.partitions[0]]

    # Clients

    def produce(
        self,
        broker_id: int,
        acks: int,
        record_count: int,
        timeout_ms: int,
        partitions: Sequence[SimPartition] | None = None,
    ) -> None:
        """Let a client send a request once: a batch for each of some partitions; None: for the first."""
        chosen = self.partitions[:1] if partitions is None else partitions
        batches = [(partition, partition.clients.send(acks, record_count)) for partition in chosen]
        self.arrive_produce(broker_id, acks, timeout_ms, batches)

    def produce_idempotently(
        self, broker_id: int, record_count: int, timeout_ms: int, partition: SimPartition | None = None
    ) -> Produced:
        """Let the idempotent producer of a partition send its batch, perhaps not for the first time."""
        chosen = partition or self.partitions[0]
        produced = chosen.clients.send_idempotent(record_count)
        self.arrive_produce(broker_id, produced.acks, timeout_ms, [(chosen, produced)])
        return produced

    def arrive_produce(self, broker_id: int, acks: int, timeout_ms: int, batches: Batches) -> None:
        """Deliver a client's request."""
        broker = self.brokers[broker_id]
        parts = [ProducePartition(partition.at, produced.data) for partition, produced in batches]
        sent = self._sending = Sent([produced for _, produced in batches])
        try:
            broker.execute(broker.core.produce(ProduceRequest(acks, timeout_ms, parts), sent, self.now_ms))
        finally:
            self._sending = None

    def consume(self, broker_id: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a consumer read all records, from an offset in each of some partitions."""
        broker = self.brokers[broker_id]
        wanted = [FetchPartition(at, offset, 1 << 20) for at, offset in offsets.items()]
        request = FetchRequest(CONSUMER, 0, 1, 1 << 20, wanted)
        broker.execute(broker.core.fetch(request, Consumed(offsets), self.now_ms))

    # Followers

    def whole_round(self, broker_id: int) -> bool:
        """Ask, arrive, respond, without a hitch and without waiting for data; says whether it was time to ask."""
        asked = self.ask(broker_id)
        for exchange in asked:
            leader = exchange.chosen.leader
            if not self.is_up(leader) or self.is_cut(broker_id, leader):
                self.traffic.requests.append(exchange)
                continue
            self.arrive(exchange, wait_ms=0)
            if exchange.response is not None:
                self.traffic.responses.remove(exchange)
                self.deliver_response(exchange)
        return bool(asked)

    # The controller

    def elect(self, broker_id: int) -> None:
        """Elect the broker as the controller; its fail-over is still to come."""
        assert self.elected is None
        if broker_id in self.controllers:
            self.end_term(broker_id)
        self.elected = broker_id
        term = self.controllers[broker_id] = self.store.term(broker_id, self.sessions[broker_id])
        term.events = self.events
        self.note("controller", broker_id, state="elected", controller_epoch=term.epoch)

    def decide(self, broker_id: int, requests: int) -> None:
        """Advance the controller in this broker by a number of requests to the store."""
        term = self.controllers[broker_id]
        has_session = broker_id not in self.without_session
        before = self.store.changes
        reads = term.session == self.sessions[broker_id]
        if not term.advance(requests, has_session=has_session, reads=reads):
            self.end_term(broker_id)
        if self.store.changes != before:
            for partition in self.partitions:
                partition.read_state()

    def decide_all(self) -> None:
        """Let the elected controller decide all it can; its requests stay queued."""
        while self.elected is not None and self.controllers[self.elected].is_busy:
            self.decide(self.elected, 1000)

    def end_term(self, broker_id: int) -> None:
        """End the term of the controller in this broker: it resigned, or its process died."""
        term = self.controllers.pop(broker_id)
        term.end()
        self.traffic.strays += term.strays

    def rebalance(self, broker_id: int) -> None:
        """Run the automatic preferred election."""
        self.controllers[broker_id].rebalance()

    def deliver(self, term: Term, broker_id: int, *, again: bool = False) -> None:
        """Deliver a controller's next control request to a broker, and its response to the controller.

        With ``again`` the response is lost, so that it will be sent once more.
        """
        queue = term.queues[broker_id]
        message = queue[0] if again else queue.popleft()
        response = self.hand_over(broker_id, message)
        if response is not None and not again and self.controllers.get(term.broker_id) is term:
            term.responded(broker_id, message, response)

    def deliver_all(self, broker_id: int) -> None:
        """All that waits for a broker at the elected controller."""
        term = None if self.elected is None else self.controllers.get(self.elected)
        while term is not None and term.queues.get(broker_id):
            self.deliver(term, broker_id)

    def hand_over(
        self, broker_id: int, message: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> PartitionsResponse | None:
        """Deliver a control request; return the response to a LeaderAndIsr."""
        broker = self.brokers[broker_id]
        match message:
            case UpdateMetadataRequest():
                broker.inputs += 1
                if broker.control_requests.check_controller_epoch(message.header) is _NONE:
                    broker.metadata.apply(message)
            case StopReplicaRequest():
                _, effects = broker.control_requests.stop_replica(message)
                broker.execute(effects)
            case LeaderAndIsrRequest():
                response: PartitionsResponse = broker.leader_and_isr(message, self.now_ms)
                return response
            case _:
                assert_never(message)
        return None

    # Processes, disks, sessions

    def kill(self, broker_id: int) -> None:
        """Kill the process; its session continues, and the disk keeps all that was written."""
        self.brokers[broker_id].kill()
        self.unreported.discard(broker_id)
        self.note("fault", broker_id, action="kill")
        self.paused.discard(broker_id)
        self.leaving.discard(broker_id)
        self.unheard.discard(broker_id)
        self.open_rounds[broker_id] = []
        self.proposals.forget(broker_id)
        if broker_id in self.controllers:
            self.end_term(broker_id)
        self.lose_requests_at(broker_id)

    def cut_power(self, broker_id: int, keep: int | Mapping[TopicPartition, int], torn: int = 0) -> None:
        """End the machine's power supply: each log loses what lies beyond an offset, but for ``torn`` bytes of a batch.

        A number as ``keep`` is the offset in the log of the first partition.
        """
        kept = {self.partitions[0].at: keep} if isinstance(keep, int) else keep
        self.kill(broker_id)
        self.note("fault", broker_id, action="power-cut")
        for partition in self.partitions:
            if partition.at in kept:
                replica = partition.brokers[broker_id]
                partition.checker.loses_power(replica, kept[partition.at])
                replica.lose_beyond(kept[partition.at], torn)
        for partition in self.partitions:
            partition.checker.check_isr()

    def fail_directory(self, broker_id: int, directory: int, writes_left: int) -> None:
        """After so many more writes, all that this broker writes to a log directory fails, until it is mended."""
        self.brokers[broker_id].failing[directory] = writes_left
        self.note("fault", broker_id, action="fail-directory")

    def mend(self, broker_id: int) -> None:
        """Repair the broker's disks; replicas that are offline stay so until it restarts."""
        broker = self.brokers[broker_id]
        broker.failing.clear()
        broker.failed_directories.clear()
        for replica in broker.replicas.values():
            replica.damaged = replica.writes_left = None
        self.note("fault", broker_id, action="mend")

    def report_failures(self, broker_id: int) -> None:
        """Report offline replicas to the controller (LogDirEventNotification), as soon as the broker can."""
        if broker_id in self.unreported and broker_id not in self.without_session:
            self.unreported.discard(broker_id)
            self.store.report_failed_replicas(broker_id)
            for term_id, term in self.controllers.items():
                if term_id not in self.without_session and self.sessions[term_id] == term.session:
                    term.directories_failed()

    def expire(self, broker_id: int) -> None:
        """ZooKeeper ends the session of a broker that is dead, paused or partitioned."""
        self.without_session.add(broker_id)
        self.note("session", broker_id, state="expired")
        self.store.unregister_broker(broker_id)
        if self.elected == broker_id:
            self.elected = None
        self._brokers_changed()

    def start(self, broker_id: int) -> None:
        """Start a process, which registers; over a session that has not expired this is a bounce."""
        broker = self.brokers[broker_id]
        if self.elected == broker_id:
            self.elected = None
        self.note("broker", broker_id, state="starting")
        broker.start(self._register(broker_id))

    def register_again(self, broker_id: int) -> None:
        """Register a process again that lost its session. A controller in it may be slow to notice."""
        broker = self.brokers[broker_id]
        broker.broker_epoch = self._register(broker_id)
        broker.core.set_broker_epoch(broker.broker_epoch)
        self.report_failures(broker_id)

    def _register(self, broker_id: int) -> int:
        self.without_session.discard(broker_id)
        self.sessions[broker_id] += 1
        broker_epoch = self.store.register_broker(broker_id)
        self._brokers_changed()
        return broker_epoch

    def _brokers_changed(self) -> None:
        for broker_id, term in self.controllers.items():
            if broker_id not in self.without_session and self.sessions[broker_id] == term.session:
                term.brokers_changed = True

    def leave(self, broker_id: int, controller: int) -> None:
        """Let the broker ask the controller to move its leaders; it stops when the response says how far that is done.

        Without a response, it leaves anyhow (KafkaServer.controlledShutdown), here once the faults have ended. It
        can't stay as it is: its replicas may have been stopped, and no request restarts them in the same leader epoch.
        """
        broker = self.brokers[broker_id]
        broker_epoch, incarnation = broker.broker_epoch, broker.incarnation

        def done(outcome: tuple[ErrorCode, list[Any]] | None) -> None:
            if broker.is_running and broker.incarnation == incarnation:
                is_done = outcome is not None and outcome[0] is _NONE
                (self.leaving if is_done else self.unheard).add(broker_id)

        self.controllers[controller].controlled_shutdown(broker_id, broker_epoch, done)

    def stop(self, broker_id: int) -> None:
        """Stop a broker that may leave: logs flushed, high watermark written, session closed."""
        broker = self.brokers[broker_id]
        broker.write_checkpoint()
        broker.flush()
        self.kill(broker_id)
        broker.ended_in_order()
        if broker_id not in self.without_session:
            self.expire(broker_id)

    def pass_time(self, ms: int) -> None:
        """Advance time; each running core runs its due timers."""
        self.now_ms += ms
        if self.wall_clocks is not None:
            self.wall_clocks.pass_time(ms)
        for broker_id, broker in self.brokers.items():
            if self.is_up(broker_id):
                broker.execute(broker.core.tick(self.now_ms))

    def set_wall_clocks(self, seed: int) -> None:
        """Let the brokers' wall clocks be wrong from now on, in one of several histories."""
        self.wall_clocks = wall_clocks_of(seed, {broker_id: broker.wall for broker_id, broker in self.brokers.items()})
