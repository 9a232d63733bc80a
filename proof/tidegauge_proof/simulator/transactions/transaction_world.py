"""Transaction coordinators in a simulated cluster, with partitions of data and a network for markers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transactions import AddPartitionsToTxn, TransactionRequest
from tidegauge_broker.coordinator.effects import AllocateProducerId, Append, Effect, FindLeaders, WriteMarkers
from tidegauge_broker.coordinator.events import (
    NO_BROKER,
    LeadersFound,
    MarkersWritten,
    ProducerIdAllocated,
    TransactionRequestArrived,
)
from tidegauge_broker.coordinator.settings import TransactionSettings
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld, Sending
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.transactions.data import V2, DataPartition, Datum
from tidegauge_proof.simulator.transactions.producers import PARTITIONS, TIMEOUT_MS, Call, Producer
from tidegauge_proof.simulator.transactions.transaction_checker import Incarnation, Token, TransactionChecker
from tidegauge_proof.simulator.world import World

SETTINGS = TransactionSettings(
    partitions=1,
    transaction_max_timeout_ms=TIMEOUT_MS,
    transactional_id_expiration_ms=1 << 50,
    abort_timed_out_interval_ms=1_000,
    remove_expired_interval_ms=1 << 40,
)
_DATA_BROKERS = 2
_NOTHING_DONE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
_PERHAPS_DONE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


@dataclass(slots=True, eq=False)
class MarkerRequest:
    """A WriteTxnMarkers request, or its response, between a coordinator and a leader."""

    process: Incarnation
    effect: WriteMarkers
    errors: dict[int, dict[TopicPartition, ErrorCode]] | None = None
    is_lost: bool = False


class TransactionWorld(CoordinatorWorld[TransactionCoordinator]):
    """Transaction coordinators, producers and data on a cluster of one partition, __transaction_state's.

    Attributes:
        late: copies of requests that the network holds back.
        late_markers: requests for markers of v2 that the network holds back until others have taken their place.
        has_v2: whether there are transactions v2.
        markers: requests on their way to the leaders of data.
        marker_responses: on their way back.
        allows_late: whether requests that their sender has given up arrive nevertheless.
        judges: whether committed transactions must be read whole, and others not at all (T7); of producers of v2
            that is asked in any case.
        version: ``transaction.version``.
    """

    def __init__(
        self,
        world: World,
        checker: TransactionChecker,
        dice: Dice,
        *,
        allows_late: bool,
        judges: bool,
        version: int = 0,
    ) -> None:
        self._settings = replace(SETTINGS, transaction_version=version, is_kafka_4=version > 0)
        self.checker = checker
        self.dice = dice
        self.allows_late = allows_late
        self.judges = judges
        self.data = {name: DataPartition(name) for name in PARTITIONS}
        self.late: list[Sending] = []
        self.markers: list[MarkerRequest] = []
        self.late_markers: list[MarkerRequest] = []
        self.has_v2 = version >= V2
        self.marker_responses: list[MarkerRequest] = []
        self.is_calm = False
        self._producer_ids = self._calls = 0
        checker.data = self.data
        super().__init__(world, checker)

    def new_coordinator(self, broker: MemoryBroker) -> TransactionCoordinator:
        """Return the coordinator of a new process."""
        return TransactionCoordinator(self._settings, self.world.now_ms, broker.wall)

    def event_of(self, token: Token) -> object:
        """Return the event of a request that arrives."""
        return TransactionRequestArrived(token, token.call.request)

    def carry_out_other(self, process: Incarnation, effect: Effect) -> None:
        """Allocate producer ids, look up leaders, and put markers on the network."""
        if isinstance(effect, Append):
            self.checker.appending(process, effect)
        elif isinstance(effect, AllocateProducerId):
            self._producer_ids += 1
            process.events.append(ProducerIdAllocated(effect.allocation_id, ErrorCode.NONE, self._producer_ids))
        elif isinstance(effect, FindLeaders):
            leaders = {
                name: NO_BROKER if not self.is_calm and self.dice.happens(0.05) else index % _DATA_BROKERS
                for index, name in enumerate(effect.partitions)
            }
            process.events.append(LeadersFound(effect.lookup_id, leaders))
        elif isinstance(effect, WriteMarkers):
            self.checker.marking(process, effect)
            self.markers.append(MarkerRequest(process, effect))

    def call(self, producer: Producer, request: TransactionRequest, **fields: Any) -> Call:
        """Return a call of its own number."""
        self._calls += 1
        return Call(self._calls, producer, request, **fields)

    def is_late(self, call: Call) -> bool:
        """Return whether the sender no longer waits for a call."""
        return call.datum is None and call.producer.in_flight is not call

    # Data

    def produce(self, producer: Producer, partition: TopicPartition, datum: Datum) -> None:
        """Have a record written: at once in an open transaction, else when the coordinator has confirmed it.

        For a producer of v2 the leader adds the partition by the request that verifies for others (KIP-890).
        """
        data = self.data[partition]
        if producer.speaks_v2:
            guard = data.guard_of_epoch(datum.producer_id, datum.producer_epoch)
        else:
            guard = data.guard(datum.producer_id)
        if guard is None:
            self.append(producer, partition, datum, None)
            return
        verification = AddPartitionsToTxn(
            producer.transactional_id,
            datum.producer_id,
            datum.producer_epoch,
            (partition,),
            verify_only=not producer.speaks_v2,
            is_implicit=producer.speaks_v2,
        )
        self.send(self.call(producer, verification, guard=guard, datum=(partition, datum)), self.leader())

    def append(self, producer: Producer, partition: TopicPartition, datum: Datum, guard: object | None) -> None:
        """Append a record, and tell its producer, unless the response is lost."""
        error = self.data[partition].append(datum, guard)
        if error is ErrorCode.NONE:
            self.checker.produced(partition, datum)
        if self.is_calm or not self.dice.happens(0.1):
            producer.written(partition, datum, error)

    def verified(self, call: Call, error: ErrorCode) -> None:
        """Take the response to a verification: the record is written now, or refused."""
        assert call.datum is not None
        partition, datum = call.datum
        if error is ErrorCode.NONE:
            self.append(call.producer, partition, datum, call.guard)
        else:
            call.producer.written(partition, datum, error)

    def leader(self) -> int:
        """Return FindCoordinator's response: mostly the leader, sometimes what a broker's old metadata say."""
        leader, brokers = self.world.state_now.leader, list(self.world.brokers)
        return leader if leader in brokers and (self.is_calm or self.dice.below(6)) else self.dice.choose(brokers)

    # Markers

    def write_markers(self, request: MarkerRequest) -> None:
        """Have a request for markers processed by the leaders of the data."""
        errors: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for one in request.effect.markers:
            of_producer = errors.setdefault(one.marker.producer_id, {})
            for name in one.partitions:
                fate = 0 if self.is_calm else self.dice.below(12)
                if fate == 1:
                    of_producer[name] = self.dice.choose(_NOTHING_DONE)
                    continue
                error = self.data[name].mark(one.marker)
                of_producer[name] = self.dice.choose(_PERHAPS_DONE) if fate == 2 and error is ErrorCode.NONE else error
        if not request.is_lost:
            self.marker_responses.append(MarkerRequest(request.process, request.effect, errors))

    def finish_markers(self, response: MarkerRequest) -> None:
        """Hand the response to a request for markers, or its failure, to the coordinator, if its process lives."""
        process = response.process
        if self.processes.get(process.broker.broker_id) is process:
            process.events.append(MarkersWritten(response.effect.request_id, response.errors))
            self.run()
