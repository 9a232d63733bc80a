"""A cluster in memory: real cores and the controller's real decisions; every step is a call.

Nothing moves unless the test moves it. Control requests wait in the brokers' queues until ``deliver``. A follower's
round is asked (``ask``), arrives (``arrive``) and is completed (``answer``) in three steps, or is lost (``lose``); an
ISR proposal waits for ``decide_isr``, its verdict for ``tell_verdict``. ``fetch``, ``alter_partition`` and ``settle``
are the short forms. Time stands still between two calls of ``advance``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from memory_broker import START_MS, Broker, make_batch
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    AlterPartitionRequest,
    ControlHeader,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import PartitionStateNode
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    CONSUMER,
    CoreSettings,
    EpochEndResult,
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
from tidegauge_broker.replica.partition import Partition
from tidegauge_controller.zookeeper.decisions.alter_partition import process_alter_partition
from tidegauge_controller.zookeeper.decisions.batch import RequestBatch
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.leaders import process_controlled_shutdown, rebalance_leaders
from tidegauge_controller.zookeeper.decisions.responses import process_response
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change

AT = TopicPartition("orders", 0)
FETCH_WAIT_MS = 500
RESPONSE_MAX_BYTES = 10 * 1024 * 1024


class Pending:
    """A produce or a consumer's fetch, completed or not yet; it is its own token."""

    def __init__(self, box: dict[object, Any]) -> None:
        self._box = box

    @property
    def is_completed(self) -> bool:
        return self in self._box

    @property
    def results(self) -> Any:
        """One for each partition."""
        assert self.is_completed, "not answered yet"
        return self._box[self]

    @property
    def result(self) -> Any:
        """Return the only partition's result."""
        (result,) = self.results
        return result

    @property
    def error(self) -> ErrorCode | None:
        """Return the only partition's error; None while it waits."""
        error: ErrorCode | None = self.result.error if self.is_completed else None
        return error


@dataclass(slots=True, eq=False)
class Exchange:
    """A follower's round on its way; also the token of its fetch on the leader. A restart ends it.

    By the rules of KIP-101 and KIP-279 a round may ask where epochs end, instead of fetching.
    """

    follower: BrokerCore
    leader: BrokerCore | None
    round: FetchRound | EpochRound
    box: dict[object, Any]

    @property
    def is_completed(self) -> bool:
        return self in self.box

    @property
    def response(self) -> FetchedPartition:
        """The leader's response to a fetch of the only partition."""
        (response,) = self.box[self]
        assert isinstance(response, FetchedPartition)
        return response


class Cluster:
    """Brokers, a controller's term, and the network between them.

    Args:
        brokers: their ids; all are started.
        assignment: the replicas of each partition, in assignment order.
        partitions: how many partitions the topic has.
        rules: the topic's settings.
        settings: the brokers' settings.
    """

    def __init__(
        self,
        brokers: Sequence[int] = (1, 2, 3),
        *,
        assignment: Sequence[int] = (1, 2, 3),
        partitions: int = 1,
        rules: TopicRules | None = None,
        settings: CoreSettings | None = None,
    ) -> None:
        self.now_ms = START_MS
        rules = rules or TopicRules()
        self.zookeeper = MemoryZooKeeper()
        self.brokers = {b: self.make_broker(b, settings or CoreSettings(), {AT.topic: rules}) for b in brokers}
        for broker in self.brokers.values():
            broker.start(self.zookeeper.register_broker(broker.broker_id))
        self.term = Term(self.zookeeper, 0)
        self.fail_over(is_first=True)
        config = {"unclean.leader.election.enable": str(rules.unclean_leader_election).lower()}
        self.topic_id = self.zookeeper.add_topic(AT.topic, dict.fromkeys(range(partitions), assignment), config)
        self._decide(process_topic_change(self.term.context))
        self.deliver()

    def make_broker(self, broker_id: int, settings: CoreSettings, rules: Mapping[str, TopicRules]) -> Broker:
        """A broker that is not started; a subclass may make another kind."""
        return Broker(broker_id, settings, rules)

    # The controller

    def fail_over(self, *, is_first: bool = False) -> None:
        """A controller is elected and takes over; its requests wait."""
        if not is_first:
            self.term = Term(self.zookeeper, 0)
        self.term.start()
        self._post()

    def _decide(self, steps: Any) -> Any:
        result = self.term.run(steps)
        self._post()
        return result

    def _post(self) -> None:
        for broker_id, message in self.term.take_sent():
            if self.brokers[broker_id].is_running:
                self.brokers[broker_id].control.append(message)

    def deliver(self, *broker_ids: int) -> list[PartitionsResponse]:
        """Hand over the control requests that wait for these brokers (default: all); returns their responses."""
        responses: list[PartitionsResponse] = []
        busy = True
        while busy:
            busy = False
            for broker_id in broker_ids or self.brokers:
                broker = self.brokers[broker_id]
                while broker.is_running and broker.control:
                    busy = True
                    responses += self.hand_over(broker_id, broker.control.pop(0))
        return responses

    def hand_over(self, broker_id: int, message: Any) -> list[PartitionsResponse]:
        """One control request arrives at a broker, and its response at the controller."""
        broker = self.brokers[broker_id]
        match message:
            case UpdateMetadataRequest():
                if broker.control_requests.check_controller_epoch(message.header) is ErrorCode.NONE:
                    broker.metadata.apply(message)
                return []
            case StopReplicaRequest():
                response, effects = broker.control_requests.stop_replica(message)
                broker.execute(effects)
            case _:
                loaded = {at: broker.load(at) for at in broker.control_requests.logs_needed(message)}
                response, effects = broker.control_requests.leader_and_isr(message, loaded, self.now_ms)
                broker.execute(effects)
                self._decide(process_response(self.term.context, broker_id, message, response))
        return [response]

    def impose(self, leader: int, isr: Sequence[int], at: TopicPartition = AT) -> LeaderAndIsrRequest:
        """The controller decides so, whatever its own rules are; the request that goes to the replicas is returned."""
        context = self.term.context
        old = context.leadership[at]
        node = PartitionStateNode(leader, old.leader_epoch + 1, tuple(isr), context.epoch)
        context.leadership[at] = node.at_version(self.zookeeper.write_state(at, node))
        batch = RequestBatch(context)
        batch.leader_and_isr([b for b in context.assignment(at).replicas if b in context.live], at, is_new=False)
        self.term.sent += batch.send().messages
        self._post()
        return self.request_of(context.state_of(at, context.leadership[at]))

    def request_of(self, *states: PartitionState, controller_epoch: int | None = None) -> LeaderAndIsrRequest:
        """A LeaderAndIsr made by hand; its broker epoch is not checked."""
        epoch = self.term.context.epoch if controller_epoch is None else controller_epoch
        items = [LeaderAndIsrPartition(state, is_new=False) for state in states]
        return LeaderAndIsrRequest(ControlHeader(0, epoch, -1), items, ())

    def shut_down_controlled(self, broker_id: int) -> tuple[ErrorCode, list[TopicPartition]]:
        """The broker asks the controller to move its leaders away; the requests wait."""
        broker_epoch = self.brokers[broker_id].broker_epoch
        outcome: tuple[ErrorCode, list[TopicPartition]] = self._decide(
            process_controlled_shutdown(self.term.context, broker_id, broker_epoch)
        )
        return outcome

    def rebalance(self) -> None:
        """The automatic preferred election; the requests wait."""
        self._decide(rebalance_leaders(self.term.context))

    # Processes and sessions

    def kill(self, *broker_ids: int) -> None:
        """The process dies at once; its session lives on."""
        for broker_id in broker_ids:
            self.brokers[broker_id].kill()

    def expire_session(self, *broker_ids: int) -> None:
        """ZooKeeper drops the registration and the controller decides; the requests wait."""
        for broker_id in broker_ids:
            self.zookeeper.unregister_broker(broker_id)
        self._decide(process_broker_change(self.term.context))

    def start(self, *broker_ids: int) -> None:
        """A new process registers (also over a session that lives: a bounce); the requests wait."""
        for broker_id in broker_ids:
            self.brokers[broker_id].start(self.zookeeper.register_broker(broker_id))
        self._decide(process_broker_change(self.term.context))

    def register_again(self, broker_id: int) -> None:
        """A process that lost its session comes back with a new one."""
        broker = self.brokers[broker_id]
        broker.control.clear()
        broker.broker_epoch = self.zookeeper.register_broker(broker_id)
        broker.core.set_broker_epoch(broker.broker_epoch)
        self._decide(process_broker_change(self.term.context))

    def advance(self, ms: int) -> None:
        """Advance the time; each broker runs its expired timers."""
        self.now_ms += ms
        for broker in self.brokers.values():
            if broker.is_running:
                broker.execute(broker.core.tick(self.now_ms))

    # Clients

    def produce(
        self,
        broker_id: int,
        *values: str,
        acks: int = ACKS_ALL,
        timeout_ms: int = 30_000,
        partitions: Sequence[TopicPartition] = (AT,),
        records: bytes | None = None,
        **batch: Any,
    ) -> Pending:
        """Send a batch of these values to each of the partitions; what else may be said of it is ``make_batch``'s."""
        broker = self.brokers[broker_id]
        data = make_batch(*(values or ("x",)), **batch) if records is None else records
        pending = Pending(broker.produced)
        request = ProduceRequest(acks, timeout_ms, [ProducePartition(at, data) for at in partitions])
        broker.execute(broker.core.produce(request, pending, self.now_ms))
        return pending

    def consume(
        self, broker_id: int, *offsets: int, wait_ms: int = 0, epoch: int | None = None, rack: str | None = None
    ) -> Pending:
        """Send a consumer's fetch; offset number i is partition i's. ``rack``: it knows of KIP-392."""
        broker = self.brokers[broker_id]
        pending = Pending(broker.fetched)
        wanted = [FetchPartition(TopicPartition(AT.topic, i), o, 1 << 20, epoch) for i, o in enumerate(offsets)]
        request = FetchRequest(CONSUMER, wait_ms, 1, 1 << 20, wanted, client_rack=rack)
        broker.execute(broker.core.fetch(request, pending, self.now_ms))
        return pending

    # Followers

    def ask(self, follower: int, leader: int | None = None) -> Exchange | None:
        """Let the follower make its next round (of this leader, or of the only one); None if there is none now."""
        broker = self.brokers[follower]
        leaders = broker.core.leaders_followed() if leader is None else {leader}
        if not leaders:
            return None
        (leader,) = leaders
        chosen = broker.core.next_round(leader, self.now_ms)
        if isinstance(chosen, Wait):
            return None
        target = self.brokers[leader]
        return Exchange(
            broker.core,
            target.core if target.is_running else None,
            chosen,
            target.fetched if target.is_running else {},
        )

    def arrive(self, exchange: Exchange, wait_ms: int = FETCH_WAIT_MS) -> Exchange:
        """The round reaches its leader, which may respond at once."""
        target = self.brokers[exchange.round.leader]
        assert target.is_running
        assert target.core is exchange.leader
        chosen = exchange.round
        if isinstance(chosen, EpochRound):
            target.fetched[exchange] = [target.core.offset_for_leader_epoch(item) for item in chosen.partitions]
            return exchange
        request = FetchRequest(exchange.follower.broker_id, wait_ms, 1, RESPONSE_MAX_BYTES, list(chosen.partitions))
        target.execute(target.core.fetch(request, exchange, self.now_ms))
        return exchange

    def deliver_response(self, exchange: Exchange) -> list[Effect]:
        """The leader's response reaches the follower; nothing where the follower's process is another."""
        broker = self.brokers[exchange.follower.broker_id]
        if not broker.is_running or broker.core is not exchange.follower:
            return []
        responses = exchange.box[exchange]
        leader, number = exchange.round.leader, exchange.round.request_id
        if isinstance(exchange.round, EpochRound):
            return broker.execute(broker.core.epoch_ends_received(leader, number, responses, self.now_ms))
        return broker.execute(broker.core.fetch_response_received(leader, number, responses, self.now_ms))

    def lose(self, exchange: Exchange) -> None:
        """The follower hears that there will be no response."""
        broker = self.brokers[exchange.follower.broker_id]
        if broker.is_running and broker.core is exchange.follower:
            leader, number = exchange.round.leader, exchange.round.request_id
            broker.execute(broker.core.round_failed(leader, number, self.now_ms))

    def park(self, follower: int) -> Exchange:
        """Ask and arrive; the response may come later."""
        exchange = self.ask(follower)
        assert exchange is not None
        return self.arrive(exchange)

    def fetch(self, follower: int, leader: int | None = None) -> FetchedPartition | EpochEndResult | None:
        """One whole round that does not wait for data; the response of the only partition."""
        exchange = self.ask(follower, leader)
        if exchange is None:
            return None
        if exchange.leader is None:
            self.lose(exchange)
            return None
        self.arrive(exchange, wait_ms=0)
        self.deliver_response(exchange)
        responses: list[FetchedPartition | EpochEndResult] = exchange.box[exchange]
        return responses[0]

    # ISR proposals

    def decide_isr(self, broker_id: int) -> tuple[IsrProposal, IsrVerdict]:
        """The broker's first proposal reaches the controller; the verdict is not sent yet."""
        broker = self.brokers[broker_id]
        proposal = broker.proposals.pop(0)
        request = AlterPartitionRequest(broker_id, broker.broker_epoch, [proposal])
        response = self._decide(process_alter_partition(self.term.context, request))
        if response.error is not ErrorCode.NONE:
            return proposal, IsrVerdict(proposal.topic_partition, response.error)
        return proposal, response.partitions[0]

    def tell_verdict(self, broker_id: int, proposal: IsrProposal, verdict: IsrVerdict) -> list[Effect]:
        """A verdict reaches the leader."""
        broker = self.brokers[broker_id]
        return broker.execute(broker.core.isr_verdict(proposal, verdict, self.now_ms))

    def alter_partition(self, broker_id: int) -> IsrVerdict:
        """The broker's first proposal, to its end."""
        proposal, verdict = self.decide_isr(broker_id)
        self.tell_verdict(broker_id, proposal, verdict)
        self.deliver()
        return verdict

    def settle(self, rounds: int = 30) -> None:
        """Let everything run until nothing changes any more; what the test holds back stays held back."""
        before: object = None
        for _ in range(rounds):
            self.deliver()
            for broker in self.brokers.values():
                if broker.is_running:
                    for leader in sorted(broker.core.leaders_followed()):
                        self.fetch(broker.broker_id, leader)
                    if broker.proposals:
                        self.alter_partition(broker.broker_id)
            after = [
                (view.log_end_offset, view.high_watermark, tuple(view.isr), view.leader_epoch)
                for broker in self.brokers.values()
                if broker.is_running
                for view in broker.core.describe(self.now_ms)
            ]
            if after == before and not any(broker.proposals for broker in self.brokers.values() if broker.is_running):
                return
            before = after
        raise AssertionError("it does not settle")

    # Views

    def partition(self, broker_id: int, at: TopicPartition = AT) -> Partition:
        partition = self.brokers[broker_id].core.partition(at)
        assert partition is not None
        return partition

    def ends(self, *broker_ids: int) -> list[tuple[int, int]]:
        """Log end offset and high watermark of each."""
        return [(p.log_end_offset, p.high_watermark) for p in map(self.partition, broker_ids)]

    def isr(self, broker_id: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The committed and the maximal ISR of a leader."""
        role = self.partition(broker_id).leader_role
        assert role is not None
        return role.isr.isr, role.isr.maximal_isr

    def epochs(self, broker_id: int, at: TopicPartition = AT) -> list[tuple[int, int]]:
        """The epoch cache: epoch, start offset."""
        return [tuple(entry) for entry in self.partition(broker_id, at).epochs.entries]

    @property
    def state(self) -> tuple[int, tuple[int, ...], int, int]:
        """Read leader, ISR, leader epoch and partition epoch of AT in ZooKeeper."""
        node = self.zookeeper.state(AT)
        return node.leader, node.isr, node.leader_epoch, self.zookeeper.version(AT)

    def records(self, broker_id: int, at: TopicPartition = AT) -> list[str]:
        """Read the records on a broker's disk, as ``value@epoch``, in the order of the offsets."""
        found = self.brokers[broker_id].disk[at].batches
        return [
            f"{record.value.decode()}@{header.leader_epoch}"
            for header, data in found
            for record in DefaultRecordBatch(data)
        ]

    def content(self, broker_id: int, at: TopicPartition = AT) -> list[tuple[int, int, bytes]]:
        """Base offset, epoch and bytes of each batch on a broker's disk."""
        return self.brokers[broker_id].disk[at].content()
