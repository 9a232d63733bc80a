"""A transaction coordinator with one partition's log beside it: everything succeeds at once, unless a test holds it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.coordinator.driven import Driven

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTxn,
    InitProducerId,
    InitProducerIdResult,
    ListTransactions,
    ListTransactionsResult,
    TransactionRequest,
    TransactionState,
)
from tidegauge_broker.coordinator.effects import (
    AllocateProducerId,
    Append,
    Effect,
    FindLeaders,
    WriteMarkers,
)
from tidegauge_broker.coordinator.events import (
    LeadersFound,
    MarkersWritten,
    ProducerIdAllocated,
    TransactionRequestArrived,
)
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.settings import TransactionSettings
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_broker.coordinator.transaction.records import read_transaction, read_transaction_key
from tidegauge_broker.coordinator.transaction.transaction import Transaction

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
OFFSETS_0 = TopicPartition("__consumer_offsets", 0)
TIMEOUT_MS = 60_000
COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


class TransactionHarness(Driven):
    """One broker's coordinator of one partition."""

    def __init__(self, *, elected: bool = True, log: Sequence[bytes] = (), now_ms: int = 1_000_000, **settings: int):
        super().__init__(log, now_ms)
        settings.setdefault("partitions", 1)
        self.coordinator = TransactionCoordinator(TransactionSettings(**settings), now_ms, self.wall)
        self.effects: list[Effect] = []
        self.timeouts_ms: list[int] = []
        self.leaders: dict[TopicPartition, int | None] = {}
        self.holds_markers = False
        self.markers: list[WriteMarkers] = []
        self.sent: list[WriteMarkers] = []
        self.marker_errors: dict[TopicPartition, ErrorCode] = {}
        self.next_producer_id = 0
        self.allocation_error = ErrorCode.NONE
        self.holds_allocations = False
        self.allocations: list[int] = []
        if elected:
            self.elect(0)

    # Driving

    def successor(self, epoch: int = 1, **settings: int) -> TransactionHarness:
        """Another broker that was elected on the same log."""
        successor = TransactionHarness(elected=False, log=self.log, now_ms=self.now_ms, **settings)
        successor.next_producer_id = self.next_producer_id + 1000
        successor.holds_markers = True
        successor.elect(epoch)
        return successor

    def carry_out(self, effects: Sequence[Effect]) -> None:
        self.effects += effects
        super().carry_out(effects)

    def carry_out_own(self, effect: Effect) -> None:
        if isinstance(effect, AllocateProducerId):
            self.allocations.append(effect.allocation_id)
            if not self.holds_allocations:
                self.allocate()
        elif isinstance(effect, FindLeaders):
            self._find_leaders(effect)
        else:
            assert isinstance(effect, WriteMarkers)
            self.sent.append(effect)
            self.markers.append(effect)
            if not self.holds_markers:
                self.write_markers()

    def allocate(self) -> None:
        """Give the request that needs one the next producer id."""
        allocation_id = self.allocations.pop(0)
        if self.allocation_error is not ErrorCode.NONE:
            self.event(ProducerIdAllocated(allocation_id, self.allocation_error))
            return
        self.next_producer_id += 1
        self.event(ProducerIdAllocated(allocation_id, ErrorCode.NONE, self.next_producer_id - 1))

    def _find_leaders(self, effect: FindLeaders) -> None:
        leaders = {partition: self.leaders.get(partition, 1) for partition in effect.partitions}
        known = {partition: leader for partition, leader in leaders.items() if leader is not None}
        self.event(LeadersFound(effect.lookup_id, known))

    def write_markers(self, index: int = 0, **errors: ErrorCode) -> None:
        """Respond to a request for markers: each partition with its error, "t-0" as t_0."""
        request = self.markers.pop(index)
        result: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for one in request.markers:
            of_producer = result.setdefault(one.marker.producer_id, {})
            for partition in one.partitions:
                named = errors.get(f"{partition.topic}_{partition.partition}")
                of_producer[partition] = named or self.marker_errors.get(partition, ErrorCode.NONE)
        self.event(MarkersWritten(request.request_id, result))

    def lose_markers(self, index: int = 0) -> None:
        """Close the connection of a request for markers."""
        self.event(MarkersWritten(self.markers.pop(index).request_id, None))

    def _append(self, effect: Append) -> None:
        self.timeouts_ms.append(effect.timeout_ms)
        assert effect.acks == -1
        super()._append(effect)

    # Requests

    def send(self, request: TransactionRequest) -> int:
        """Send a request, and return its token."""
        token = self.token()
        self.event(TransactionRequestArrived(token, request))
        return token

    def ask(self, request: TransactionRequest):
        return self.response_to(self.send(request))

    def error(self, token: int) -> ErrorCode:
        """The error of a response; of one with partitions the same for all."""
        result = self.response_to(token)
        if hasattr(result, "error"):
            return result.error
        (error,) = set(result.partitions.values())
        return error

    def send_init(
        self, producer_id: int = -1, epoch: int = -1, *, name: str | None = "tx", timeout_ms: int = TIMEOUT_MS
    ) -> int:
        return self.send(InitProducerId(name, timeout_ms, producer_id, epoch))

    def init(self, producer_id: int = -1, epoch: int = -1, **fields) -> InitProducerIdResult:
        result = self.response_to(self.send_init(producer_id, epoch, **fields))
        assert isinstance(result, InitProducerIdResult)
        return result

    def send_add(self, *partitions: TopicPartition, producer_id: int = 0, epoch: int = 0, name: str = "tx") -> int:
        return self.send(AddPartitionsToTxn(name, producer_id, epoch, partitions or (T0,)))

    def add(self, *partitions: TopicPartition, **fields) -> ErrorCode:
        return self.error(self.send_add(*partitions, **fields))

    def verify(self, *partitions: TopicPartition, producer_id: int = 0, epoch: int = 0, name: str = "tx"):
        request = AddPartitionsToTxn(name, producer_id, epoch, partitions or (T0,), verify_only=True)
        return self.ask(request).partitions

    def add_offsets(self, partition: int = 0, producer_id: int = 0, epoch: int = 0, name: str = "tx") -> ErrorCode:
        return self.ask(AddOffsetsToTxn(name, producer_id, epoch, partition)).error

    def send_end(self, outcome: Outcome = COMMIT, producer_id: int = 0, epoch: int = 0, name: str = "tx") -> int:
        return self.send(EndTxn(name, producer_id, epoch, outcome))

    def end(self, outcome: Outcome = COMMIT, producer_id: int = 0, epoch: int = 0, name: str = "tx") -> ErrorCode:
        return self.error(self.send_end(outcome, producer_id, epoch, name))

    def describe(self, name: str = "tx") -> DescribeTransactionResult:
        result = self.ask(DescribeTransaction(name))
        assert isinstance(result, DescribeTransactionResult)
        return result

    def list(self, **filters) -> ListTransactionsResult:
        result = self.ask(ListTransactions(**filters))
        assert isinstance(result, ListTransactionsResult)
        return result

    # Views

    def view(self, name: str = "tx"):
        view = self.coordinator.transaction_view(name)
        assert view is not None
        return view

    def state(self, name: str = "tx") -> TransactionState:
        return self.view(name).state

    def pending(self, name: str = "tx") -> TransactionState | None:
        return self.view(name).pending_state

    def records(self) -> list[tuple[str, Transaction | None]]:
        """Return the content of the log, oldest first."""
        return [(name, None if value is None else read_transaction(name, value)) for name, value in self.values()]

    def values(self) -> list[tuple[str, bytes | None]]:
        """Return the content of the log, oldest first, as it is written."""
        return [
            (name, value)
            for stored in self.log
            for batch in read_batches(stored)
            for key, value in batch.records
            if isinstance(name := read_transaction_key(key or b""), str)
        ]

    def states_written(self) -> list[TransactionState | None]:
        return [None if transaction is None else transaction.state for _, transaction in self.records()]

    def markers_sent(self) -> list[tuple[int, Outcome, int, int, tuple[TopicPartition, ...]]]:
        """Of every marker sent: broker, outcome, producer epoch, coordinator epoch, partitions."""
        return [
            (
                request.broker_id,
                one.marker.outcome,
                one.marker.producer_epoch,
                one.marker.coordinator_epoch,
                one.partitions,
            )
            for request in self.sent
            for one in request.markers
        ]

    # Stories

    def ongoing(self, *partitions: TopicPartition) -> None:
        """A producer 0 in epoch 0 with an open transaction."""
        assert self.init().error is ErrorCode.NONE
        assert self.add(*partitions) is ErrorCode.NONE
