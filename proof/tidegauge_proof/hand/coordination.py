"""Transaction, group and share coordinators in a cluster that is driven by hand, and the requests that concern them.

The coordinators are broker processes' own, on every broker; their logs are replicated partitions of the same
cluster (``CoordinatorWorld``). The work of a broker's shell around them is done here too: a transactional batch is
verified before it is appended (``ProduceVerification``, KIP-890), a marker is appended as a control batch. Each request
and each response is a message in flight (``Post``).

This module is imported when a cluster has coordinators, not before: it takes a browser seconds to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SharePartitionKey, ShareStateRequest, ShareStateResult
from tidegauge.transactions import SupportedOperation
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import (
    AllocateProducerId,
    ChangeShareStates,
    Effect,
    FindLeaders,
    VerifyTransaction,
    WriteMarkers,
)
from tidegauge_broker.coordinator.events import (
    NO_BROKER,
    LeadersFound,
    ProducerIdAllocated,
    RequestArrived,
    ShareStatesChanged,
    TopicsChanged,
    TransactionRequestArrived,
)
from tidegauge_broker.coordinator.settings import GroupSettings, TransactionSettings
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import ACKS_ALL, ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.server.service.produce_verification import ProduceVerification, Verified
from tidegauge_broker.share.partition import SharePartition
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.coordinator_texts import text_of, text_of_response
from tidegauge_proof.hand.group_names import OFFSETS, SHARE_STATES, TRANSACTIONS
from tidegauge_proof.hand.messages import Coordinated, Message
from tidegauge_proof.hand.request_holds import RequestHolds
from tidegauge_proof.hand.transaction_peers import Marked, TransactionPeers, is_completion
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.consumer_groups.consumers import TOPIC, TOPIC_ID
from tidegauge_proof.simulator.coordinator_world import (
    Arrived,
    CoordinatorChecker,
    CoordinatorWorld,
    Process,
    Response,
    Sending,
)
from tidegauge_proof.simulator.exactly_once.driving import drive
from tidegauge_proof.simulator.groups.members import PARTITIONS
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker
from tidegauge_proof.simulator.traffic import Sent
from tidegauge_proof.simulator.world import World

E = ErrorCode
ORDERS_ID = b"the id of orders"
TOPICS = {
    TOPIC: TopicDescription(TOPIC, TOPIC_ID, ((),) * PARTITIONS),
    AT.topic: TopicDescription(AT.topic, ORDERS_ID, ((),)),
}
"""The coordinators' view of topics that groups read."""
TRANSACTION_TIMEOUT_MS = 60_000
"""transaction.timeout.ms of a producer by default."""
_PRODUCE_TIMEOUT_MS = 30_000
_RETENTION_MS = 1 << 50  # nothing expires while a person looks
_LEAST_SESSION_MS = 1_000
"""group.min.session.timeout.ms: below Kafka's default, for the stories whose consumers have short sessions."""
_ABORT_INTERVAL_MS = 1_000
"""transaction.abort.timed.out.transaction.cleanup.interval.ms: below Kafka's default, so that a person waits less."""
_MOST_ROUNDS = 200
Send = Callable[[str, int, int, str, Coordinated], Message]


@dataclass(slots=True, eq=False)
class Call:
    """A request to a coordinator.

    Attributes:
        source: the broker that sent it, or ``CLIENT``.
        request: the message to send.
        done: takes the result, each time that a response arrives.
        lost: called if no response will arrive: a message was lost, or the process ended.
    """

    source: int
    request: Any
    done: Callable[[Any], None]
    lost: Callable[[], None] = lambda: None


class Unjudged:
    """The place of a checker of coordinators: a person looks at them here, and the proofs run in the simulator."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what takes any event."""
        return lambda *_, **__: None


def unjudged() -> CoordinatorChecker:
    """Return a checker that judges nothing."""
    return cast("CoordinatorChecker", Unjudged())


class Shares(Protocol):
    """The leaders of share partitions (``share_leaders``)."""

    def hosted(self) -> Iterator[tuple[int, SharePartition]]:
        """Yield the share partitions of the processes that respond, with their brokers."""
        ...

    def settle(self) -> None:
        """Serve the fetches that are due."""

    def step_timers(self) -> None:
        """Run the timers that are due."""

    def ask_state(
        self, broker: MemoryBroker, request: ShareStateRequest, done: Callable[[ShareStateResult], None]
    ) -> None:
        """Send a broker's request to the share coordinator; ``done`` takes the result once."""


class _Transactions(CoordinatorWorld[TransactionCoordinator]):
    """The transaction coordinators."""

    def __init__(self, owner: Coordination, world: World) -> None:
        self.owner = owner
        super().__init__(world, unjudged(), owner.partitions[TRANSACTIONS])

    def new_coordinator(self, broker: MemoryBroker) -> TransactionCoordinator:
        """Return the coordinator of a new process."""
        settings = TransactionSettings(
            partitions=1,
            transactional_id_expiration_ms=_RETENTION_MS,
            abort_timed_out_interval_ms=_ABORT_INTERVAL_MS,
            transaction_version=2 if self.owner.transactions_v2 else 0,
            is_kafka_4=self.owner.transactions_v2,
        )
        return TransactionCoordinator(settings, self.world.now_ms, broker.wall)

    def event_of(self, token: Arrived[TransactionCoordinator]) -> object:
        """Return the event of a request that arrives."""
        return TransactionRequestArrived(token, token.call.request)

    def carry_out_other(self, process: Process[TransactionCoordinator], effect: Effect) -> None:
        """Allocate producer ids, look up leaders, send markers."""
        if isinstance(effect, AllocateProducerId):
            self.owner.producer_ids += 1
            allocated = ProducerIdAllocated(effect.allocation_id, E.NONE, self.owner.producer_ids)
            process.events.append(allocated)
        elif isinstance(effect, FindLeaders):
            process.events.append(LeadersFound(effect.lookup_id, self.owner.leaders_known(process.broker, effect)))
        elif isinstance(effect, WriteMarkers):
            self.owner.peers.send_markers(process, effect)


class _Groups(CoordinatorWorld[GroupCoordinator]):
    """The group coordinators."""

    def __init__(self, owner: Coordination, world: World) -> None:
        self._member_ids = 0
        self.owner = owner
        super().__init__(world, unjudged(), owner.partitions[OFFSETS])

    def new_coordinator(self, broker: MemoryBroker) -> GroupCoordinator:
        """Return the coordinator of a new process, after an empty retention run."""
        settings = GroupSettings(
            partitions=1,
            offsets_retention_ms=_RETENTION_MS,
            offsets_retention_check_interval_ms=1 << 40,
            group_min_session_timeout_ms=_LEAST_SESSION_MS,
            serves_consumer_groups=True,
            serves_share_groups=SHARE_STATES in self.owner.partitions,
        )
        coordinator = GroupCoordinator(settings, self.world.now_ms, broker.wall)
        coordinator.step(self.world.now_ms)
        coordinator.handle(TopicsChanged(TOPICS), self.world.now_ms)
        return coordinator

    def event_of(self, token: Arrived[GroupCoordinator]) -> object:
        """Return the event of an arriving request, with a new member id."""
        self._member_ids += 1
        return RequestArrived(token, token.call.request, f"{self._member_ids}")

    def carry_out_other(self, process: Process[GroupCoordinator], effect: Effect) -> None:
        """Have transactional offsets verified, and the share coordinator begin the states of share partitions."""
        if isinstance(effect, VerifyTransaction):
            self.owner.peers.verify_offsets(process, effect)
        elif isinstance(effect, ChangeShareStates):
            self.owner.change_share_states(process, effect)


class Coordination:
    """Both kinds of coordinators on one cluster; to the world it is its ``Coordinators``.

    Args:
        world: has the partitions ``NAMES``.
        send: puts a message into flight (``Post.send``).
        transactions_v2: whether transaction.version is 2, which Kafka has in KRaft mode alone.
    """

    def __init__(self, world: World, send: Send, *, transactions_v2: bool = False) -> None:
        self.world = world
        self.transactions_v2 = transactions_v2
        self.producer_ids = 0
        self.send = send
        self.partitions = {partition.at: partition for partition in world.partitions}
        self.transactions = _Transactions(self, world)
        self.groups = _Groups(self, world)
        self._of: dict[TopicPartition, CoordinatorWorld[Any]] = {TRANSACTIONS: self.transactions, OFFSETS: self.groups}
        self._open: dict[Call, Process[Any]] = {}
        """Requests that have arrived and have no response yet."""
        self.group_topic = TOPIC
        """The topic that classic groups read."""
        self.shares: Shares | None = None
        self.peers = TransactionPeers(self)
        self.holds = RequestHolds()
        self.connections: list[tuple[int, Callable[[], None]]] = []
        """Requests that a broker has taken and not responded to, with what their loss does (rule 1)."""
        self.watch: Callable[[], None] = lambda: None
        """Called when the work inside the processes is done: clients look whether they have their responses."""
        self.lose: Callable[[Message], object] = lambda _: None
        """Loses a message (``Post.lose``)."""
        world.coordinators = self
        self.settle()

    def serve_shares(self, shares: Shares, states: CoordinatorWorld[Any]) -> None:
        """Take in what serves share groups, if the cluster has them: the leaders, and the share coordinators."""
        self.shares, self._of[SHARE_STATES] = shares, states
        self.world.coordinators = self
        self.settle()

    # Reports of the replica cores

    def leadership_changed(self, broker: MemoryBroker, change: LeadershipChanged) -> None:
        """Hand a leadership that was gained or lost to the coordinators."""
        for one in self._of.values():
            one.leadership_changed(broker, change)

    def produced(self, broker: MemoryBroker, token: object, results: Sequence[ProduceResult]) -> None:
        """Hand the outcome of an append to whoever waits for it."""
        if isinstance(token, Marked):
            if token.incarnation == broker.incarnation:
                token.done(results)
            return
        for one in self._of.values():
            one.produced(broker, token, results)

    # Consequences

    def settle(self) -> None:
        """Carry out the pending work inside the processes, and put the responses into flight."""
        kinds_of = self._of.values()
        if self.shares is not None:
            self.shares.settle()
        for _ in range(_MOST_ROUNDS):
            for one in kinds_of:
                one.run()
                for process in one.loading():
                    one.go_on_loading(process)
            if not any(process.events or process.load for one in kinds_of for process in self._running(one)):
                break
        for one in kinds_of:
            responses, one.responses = one.responses, []
            for response in responses:
                if is_completion(response.call):
                    response.call.done(response.result)
                else:
                    self._respond(response)
        self._end_calls()
        self.watch()

    def _end_calls(self) -> None:
        """Break the connections of requests whose process has ended without a response."""
        there = {id(process) for one in self._of.values() for process in one.processes.values()}
        ended = [call for call, process in self._open.items() if id(process) not in there]
        for call in ended:
            del self._open[call]
        for call in ended:
            call.lost()

    def _running(self, one: CoordinatorWorld[Any]) -> Iterator[Process[Any]]:
        return (process for broker, process in one.processes.items() if self.world.is_up(broker))

    def step_timers(self) -> None:
        """Run the timers of the coordinators that are due."""
        for one in self._of.values():
            one.step_timers()
        if self.shares is not None:
            self.shares.step_timers()
        self.settle()

    def coordinator(self, at: TopicPartition) -> Process[Any] | None:
        """Return the process that coordinates an internal partition, if any."""
        process = self._of[at].processes.get(self.leader_of(at))
        serves = process is not None and process.load is None and self.world.is_up(process.broker.broker_id)
        return process if serves else None

    # Messages

    def leader_of(self, at: TopicPartition) -> int:
        """Return the leader of a partition; -1: there is none."""
        return self.partitions[at].state_now.leader

    def in_flight(self, kind: str, ends: tuple[int, int], text: str, arrive: Callable[[], str], lose: Any) -> None:
        """Put a message into flight; it may be held, or lost at once (``RequestHolds``)."""
        message = self.send(kind, *ends, text, Coordinated(arrive, lose))
        if self.holds.look_at(message):
            self.lose(message)

    def process_ended(self, broker_id: int) -> None:
        """Break the connections of a broker whose process has ended."""
        for message in self.holds.process_ended(broker_id):
            self.lose(message)
        ended = [lost for broker, lost in self.connections if broker == broker_id]
        self.connections = [one for one in self.connections if one[0] != broker_id]
        for lost in ended:
            lost()

    def ask_from(
        self, source: int, at: TopicPartition, request: Any, done: Callable[[Any], None], lost: Callable[[], None]
    ) -> bool:
        """Send a request of a broker or of a client to a coordinator; return whether there is one."""
        return self.ask(at, Call(source, request, done, lost))

    def ask(self, at: TopicPartition, call: Call) -> bool:
        """Send a request to the coordinator that leads a partition; return whether there is one."""
        broker_id = self.leader_of(at)
        if broker_id == NO_LEADER:
            return False
        coordinators = self._of[at]

        def arrive() -> str:
            process = coordinators.processes.get(broker_id)
            if coordinators.arrive(Sending(call, broker_id)) and process is not None:
                self._open[call] = process
                self.settle()
                return ""
            call.lost()
            return f"broker {broker_id} does not take connections"

        self.in_flight(kinds.COORDINATOR_REQUEST, (call.source, broker_id), text_of(call.request), arrive, call.lost)
        return True

    def _respond(self, response: Response) -> None:
        call: Call = response.call
        self._open.pop(call, None)

        def arrive() -> str:
            call.done(response.result)
            self.settle()
            return ""

        ends = (response.process.broker.broker_id, call.source)
        text = text_of_response(call.request, response.result)
        self.in_flight(kinds.COORDINATOR_RESPONSE, ends, text, arrive, call.lost)

    # Transactional batches

    def arrive_produce(
        self,
        broker_id: int,
        transactional_id: str,
        produced: Produced,
        at: TopicPartition = AT,
        operation: SupportedOperation = SupportedOperation.GENERIC_ERROR_SUPPORTED,
    ) -> None:
        """Deliver a transactional batch: the broker has it verified by the coordinator, then appends it."""
        broker = self.world.brokers[broker_id]
        request = ProduceRequest(ACKS_ALL, _PRODUCE_TIMEOUT_MS, [ProducePartition(at, produced.data)])
        verification = ProduceVerification(
            lambda one, batch: broker.core.begin_verification(one, batch, self.world.now_ms),
            partial(self.peers.verify, broker),
        )
        found = verification.of(request, transactional_id, operation)
        incarnation = broker.incarnation

        def go_on(verified: Verified) -> None:
            if broker.incarnation != incarnation or not broker.is_running:
                return
            if verified.refused:
                self.partitions[at].clients.responded(produced, verified.refused[0].error, -1, at_once=False)
            else:
                broker.execute(broker.core.produce(verified.request, Sent([produced]), self.world.now_ms))
            self.settle()

        if isinstance(found, Verified):
            go_on(found)
        else:
            drive(found, go_on)

    # Share groups

    def change_share_states(self, process: Process[GroupCoordinator], effect: ChangeShareStates) -> None:
        """Have the share coordinator begin or forget states, and report the outcome once."""
        own, incarnation = process.broker, process.incarnation
        errors: dict[SharePartitionKey, ErrorCode] = {}

        def take(key: SharePartitionKey, result: ShareStateResult) -> None:
            errors[key] = result.error
            if len(errors) == len(effect.requests) and own.is_running and own.incarnation == incarnation:
                process.events.append(ShareStatesChanged(effect.change_id, errors))

        assert self.shares is not None, "a group coordinator without share groups begins no states"
        for request in effect.requests:
            self.shares.ask_state(own, request, partial(take, request.key))

    # Markers

    def leaders_known(self, broker: MemoryBroker, effect: FindLeaders) -> dict[TopicPartition, int]:
        """Return the leaders that a broker's metadata name."""
        found = {}
        for at in effect.partitions:
            state = broker.metadata.states.get(at)
            leader = NO_BROKER if state is None else state.leader
            found[at] = leader if leader >= 0 and broker.metadata.is_alive(leader) else NO_BROKER
        return found
